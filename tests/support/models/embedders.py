"""Writes tiny random models that make vectors, and says in numpy which ones they make.

The arithmetic is written from the definitions, in float64, over the tensors of the file.

    bert             learned positions, norms behind (also with a classifier)
    xlm-roberta      the same with a unigram vocabulary; its file says `bert`
    nomic-bert       rotated, gated with SiLU
    nomic-bert-moe   rotated, experts in every second layer
    jina-bert-v2     ALiBi, gated with GELU
    jina-bert-v3     rotated, norms behind
    modern-bert      norms in front, a window in two of three layers
    neo-bert         root mean squares in front, neighbours rotated, one matrix for gate and up
    eurobert         root mean squares in front, rotated, gated with SiLU
    gemma-embedding  norms in front and behind, heads normed, windows, gated with GELU
    t5encoder        a bias for each distance, no scaling
"""

from __future__ import annotations

import math
from pathlib import Path

import gguf
import numpy as np
from gguf import quants

from tests.support.models.architectures import HEAD, Model
from tests.support.models.ggufs import (
    BOOL,
    F32,
    I32,
    STR,
    Gguf,
    Key,
    Raw,
    Tensor,
    array,
    f32,
    spm_vocabulary,
    text,
    u32,
)

WIDTH, INNER, HEADS, LAYERS, CONTEXT, VOCABULARY = 64, 96, 4, 3, 96, 320
WINDOW, BUCKETS = 8, 32
EXPERTS, USED = 4, 2
_HEAD = WIDTH // HEADS
_EPSILON = 1e-5
SEP = 3
_WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def word_vocabulary() -> dict[str | bytes, Key | Raw]:
    """Keys of a WordPiece vocabulary: letters, at the beginning of a word and in it."""
    letters = "etaoinshrdlucmfwypvbgkjqxz.,?!0123456789"
    tokens = [*_WORDS, *("\u2581" + c for c in letters), *letters]
    tokens += [f"\u2581{a}{b}" for a in letters for b in letters][: VOCABULARY - len(tokens)]
    kinds = [3] * len(_WORDS) + [1] * (len(tokens) - len(_WORDS))
    return {
        "tokenizer.ggml.model": text("bert"),
        "tokenizer.ggml.pre": text("default"),
        "tokenizer.ggml.tokens": array(STR, tokens),
        "tokenizer.ggml.token_type": array(I32, kinds),
        "tokenizer.ggml.unknown_token_id": u32(1),
        "tokenizer.ggml.bos_token_id": u32(2),
        "tokenizer.ggml.seperator_token_id": u32(3),
        "tokenizer.ggml.padding_token_id": u32(0),
        "tokenizer.ggml.mask_token_id": u32(4),
    }


def unigram_vocabulary() -> dict[str | bytes, Key | Raw]:
    """Keys of a unigram vocabulary as XLM-RoBERTa has it: special tokens, letters, pairs."""
    letters = "etaoinshrdlucmfwypvbgkjqxz.,?!0123456789"
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "\u2581", *("\u2581" + c for c in letters), *letters]
    tokens += [f"\u2581{a}{b}" for a in letters for b in letters][: VOCABULARY - len(tokens)]
    kinds = [3, 3, 3, 2] + [1] * (len(tokens) - 4)
    scores = [0.0] * 4 + [-5.0 + len(token) for token in tokens[4:]]
    return {
        "tokenizer.ggml.model": text("t5"),
        "tokenizer.ggml.pre": text("default"),
        "tokenizer.ggml.tokens": array(STR, tokens),
        "tokenizer.ggml.token_type": array(I32, kinds),
        "tokenizer.ggml.scores": array(F32, scores),
        "tokenizer.ggml.add_space_prefix": Key(BOOL, 1),
        "tokenizer.ggml.add_bos_token": Key(BOOL, 1),
        "tokenizer.ggml.bos_token_id": u32(0),
        "tokenizer.ggml.padding_token_id": u32(1),
        "tokenizer.ggml.eos_token_id": u32(2),
        "tokenizer.ggml.unknown_token_id": u32(3),
    }


class Embedder:
    """A file under construction, and the same arithmetic in numpy."""

    def __init__(
        self,
        architecture: str,
        *,
        pooling: int | None = 1,
        classifier: int = 0,
        pooler: bool = True,
        encoding: str = "F32",
    ) -> None:
        """
        pooling     llama.cpp's number; the converter writes none beside a classifier
        classifier  its outputs, 0: there is none
        pooler      it has a layer of its own, which the converter leaves out of a BERT's
        encoding    of the matrices that the converter does not keep in F32
        """
        self.kind = architecture
        self.encoding = gguf.GGMLQuantizationType[encoding]
        self.architecture = "bert" if architecture == "xlm-roberta" else architecture
        self.pooling = pooling
        self.outputs = classifier
        self._rng = np.random.default_rng(list(architecture.encode()))
        self.tensors: dict[str, np.ndarray] = {}
        getattr(self, "_" + self.architecture.replace("-", "_"))()
        if architecture == "xlm-roberta":
            self.tensors["token_types.weight"] = self.tensors["token_types.weight"][:1]
        if classifier:
            self._classifier(classifier, pooler=pooler)

    def write(self, path: Path, **keys: Key) -> Path:
        """The file; returns `path`."""
        name = self.architecture
        vocabulary = {"bert": word_vocabulary, "xlm-roberta": unigram_vocabulary}.get(self.kind)
        made = Gguf(
            keys={
                "general.architecture": text(name),
                "general.type": text("model"),
                "general.name": text(f"tiny {name}"),
                "general.file_type": u32(0),
                f"{name}.block_count": u32(LAYERS),
                f"{name}.context_length": u32(CONTEXT),
                f"{name}.embedding_length": u32(WIDTH),
                f"{name}.feed_forward_length": u32(INNER),
                f"{name}.attention.head_count": u32(HEADS),
                f"{name}.attention.head_count_kv": u32(HEADS),
                f"{name}.attention.causal": Key(BOOL, 0),
                f"{name}.attention.layer_norm_{'rms_' if name in _SQUARES else ''}epsilon": f32(
                    _EPSILON
                ),
                **(vocabulary() if vocabulary else spm_vocabulary(VOCABULARY)),
                "tokenizer.ggml.token_type_count": u32(
                    len(self.tensors.get("token_types.weight", "AB"))
                ),
                "general.quantization_version": u32(2),
            }
        )
        if self.kind != "bert":
            made.keys["tokenizer.ggml.add_eos_token"] = Key(BOOL, 1)
        if self.pooling is not None:
            made.keys[f"{name}.pooling_type"] = u32(self.pooling)
        if self.outputs:
            labels = [f"LABEL_{place}" for place in range(self.outputs)]
            made.keys[f"{name}.classifier.output_labels"] = array(STR, labels)
        if name in _ROTATED:
            made.keys[f"{name}.rope.freq_base"] = f32(1000.0)
        if name == "nomic-bert-moe":
            made.keys |= {
                f"{name}.moe_every_n_layers": u32(2),
                f"{name}.expert_count": u32(EXPERTS),
                f"{name}.expert_used_count": u32(USED),
            }
        if name in _WINDOWED:
            made.keys |= {
                f"{name}.attention.sliding_window": u32(WINDOW),
                f"{name}.rope.freq_base": f32(10_000.0),
                f"{name}.rope.freq_base_swa": f32(100.0),
            }
        if name == "gemma-embedding":
            made.keys |= {
                f"{name}.attention.key_length": u32(_HEAD),
                f"{name}.attention.value_length": u32(_HEAD),
                f"{name}.attention.sliding_window_pattern": u32(3),
            }
        if name == "t5encoder":
            made.keys[f"{name}.attention.relative_buckets_count"] = u32(BUCKETS)
        made.keys |= {f"{name}.{key}": value for key, value in keys.items()}
        for tensor, values in self.tensors.items():
            kind = self._encoding(tensor, values.ndim)
            data = quants.quantize(values.astype(np.float32), kind).tobytes()
            made.tensors.append(Tensor(tensor, values.shape[::-1], kind.value, data))
        return made.write(path)

    def rows(self, tokens: list[int]) -> np.ndarray:
        """What the last layer says of each token, float64 [tokens, width]."""
        name, is_t5 = self.architecture, self.architecture == "t5encoder"
        rows = self.tensors["token_embd.weight"][tokens]
        if name == "gemma-embedding":
            rows = rows * math.sqrt(WIDTH)
        if "token_types.weight" in self.tensors:
            rows = rows + self.tensors["token_types.weight"][self._types(tokens)]
        if "position_embd.weight" in self.tensors:
            rows = rows + self.tensors["position_embd.weight"][: len(tokens)]
        if "token_embd_norm.weight" in self.tensors:
            rows = self._norm(rows, "token_embd_norm")
        for layer in range(LAYERS):
            own = f"enc.blk.{layer}." if is_t5 else f"blk.{layer}."
            if own + "ffn_norm.weight" in self.tensors:
                rows = rows + self._behind(
                    self._attention(self._norm(rows, own + "attn_norm"), own, layer),
                    own + "post_attention_norm",
                )
                inner = self._inner(self._norm(rows, own + "ffn_norm"), own)
                rows = rows + self._behind(inner, own + "post_ffw_norm")
            else:
                mixed = rows + self._attention(rows, own, layer)
                rows = self._norm(mixed, own + "attn_output_norm")
                rows = self._norm(rows + self._inner(rows, own), own + "layer_output_norm")
        for last in ("enc.output_norm", "output_norm"):
            rows = self._behind(rows, last)
        return rows

    def _behind(self, rows: np.ndarray, name: str) -> np.ndarray:
        """Normed, where the model has a norm of this name."""
        return self._norm(rows, name) if name + ".weight" in self.tensors else rows

    def vector(self, tokens: list[int], pooling: str = "mean") -> np.ndarray:
        """Of length 1, float64 [width]."""
        rows = self.rows(tokens)
        made = {"mean": rows.mean(0), "cls": rows[0], "last": rows[-1]}[pooling]
        return made / np.linalg.norm(made)

    def logits(self, tokens: list[int]) -> np.ndarray:
        """What the classifier says, float64 [outputs]."""
        rows, act = self.rows(tokens), np.tanh
        hidden = rows[:1]
        if self.architecture == "modern-bert":
            hidden, act = rows.mean(0, keepdims=True), _gelu
        if "cls.weight" in self.tensors:
            hidden = self._behind(act(self._dense(hidden, "cls")), "cls.norm")
        if "cls.output.weight" in self.tensors:
            hidden = self._dense(hidden, "cls.output")
        return hidden[0]

    def _types(self, tokens: list[int]) -> np.ndarray:
        """1 for tokens of a pair's second text, where the tokenizer tells them apart."""
        is_pair = self.kind == "bert" and bool(self.outputs)
        return (np.cumsum(np.array([0, *tokens[:-1]]) == SEP) > 0) * int(is_pair)

    def _classifier(self, outputs: int, *, pooler: bool) -> None:
        if self.architecture == "jina-bert-v2":
            self._matrix("cls.weight", outputs, WIDTH, scale=4.0)
            self._vector("cls.bias", outputs)
            return
        if pooler:
            self._matrix("cls.weight", WIDTH, WIDTH)
        if pooler and self.architecture == "modern-bert":
            self._vector("cls.norm.weight", WIDTH, mean=1.0)
        elif pooler:
            self._vector("cls.bias", WIDTH)
        self._matrix("cls.output.weight", outputs, WIDTH, scale=4.0)
        self._vector("cls.output.bias", outputs)

    def _encoding(self, name: str, dimensions: int) -> gguf.GGMLQuantizationType:
        """As the converter chooses it."""
        if dimensions < 2 or name.endswith(_PLAIN):
            return gguf.GGMLQuantizationType.F32
        return self.encoding

    # What each architecture has.

    def _bert(self) -> None:
        self._common(biases=True)
        self._matrix("position_embd.weight", CONTEXT, WIDTH, scale=3.0)

    def _nomic_bert(self) -> None:
        self._common(gate=True)

    def _jina_bert_v2(self) -> None:
        self._common(biases=True, gate=True)
        for layer in range(LAYERS):
            del self.tensors[f"blk.{layer}.ffn_up.bias"]

    def _modern_bert(self) -> None:
        self._in_front("output_norm", joined=True)
        self._vector("token_embd_norm.weight", WIDTH, mean=1.0)
        del self.tensors["blk.0.attn_norm.weight"]

    def _jina_bert_v3(self) -> None:
        self._common(biases=True)

    def _nomic_bert_moe(self) -> None:
        self._common(biases=True)
        own = "blk.1."
        for name in ("ffn_up.weight", "ffn_up.bias", "ffn_down.weight", "ffn_down.bias"):
            del self.tensors[own + name]
        self._matrix(own + "ffn_gate_inp.weight", EXPERTS, WIDTH, scale=2.0)
        self._matrix(own + "ffn_up_exps.weight", EXPERTS, INNER, WIDTH, scale=1.5)
        self._matrix(own + "ffn_down_exps.weight", EXPERTS, WIDTH, INNER, scale=1.5)

    def _neo_bert(self) -> None:
        self._in_front("enc.output_norm", joined=True)

    def _eurobert(self) -> None:
        self._in_front("output_norm")

    def _gemma_embedding(self) -> None:
        self._eurobert()
        for layer in range(LAYERS):
            own = f"blk.{layer}."
            for name, length in (("post_attention_norm", WIDTH), ("post_ffw_norm", WIDTH),
                                 ("attn_q_norm", _HEAD), ("attn_k_norm", _HEAD)):  # fmt: skip
                self._vector(f"{own}{name}.weight", length, mean=1.0)

    def _t5encoder(self) -> None:
        self._in_front("enc.output_norm", prefix="enc.blk", out="attn_o", scale=0.5)
        self._matrix("enc.blk.0.attn_rel_b.weight", BUCKETS, HEADS, scale=2.0)

    def _in_front(
        self, last: str, *, joined: bool = False, prefix: str = "blk", out: str = "attn_output",
        scale: float = 1.5,
    ) -> None:  # fmt: skip
        """Norms in front of attention and feed-forward layers, and the one called `last`.

        joined  one matrix for query, key and value, and one for gate and up
        scale   of attention's matrices
        """
        self._matrix("token_embd.weight", VOCABULARY, WIDTH, scale=8.0)
        self._vector(f"{last}.weight", WIDTH, mean=1.0)
        attention = {"attn_qkv": 3} if joined else {"attn_q": 1, "attn_k": 1, "attn_v": 1}
        inner = {"ffn_up": 2} if joined else {"ffn_gate": 1, "ffn_up": 1}
        for layer in range(LAYERS):
            own = f"{prefix}.{layer}."
            for name in ("attn_norm", "ffn_norm"):
                self._vector(f"{own}{name}.weight", WIDTH, mean=1.0)
            for name, count in attention.items():
                self._matrix(f"{own}{name}.weight", count * WIDTH, WIDTH, scale=scale)
            self._matrix(f"{own}{out}.weight", WIDTH, WIDTH, scale=min(scale, 1.0))
            for name, count in inner.items():
                self._matrix(f"{own}{name}.weight", count * INNER, WIDTH)
            self._matrix(own + "ffn_down.weight", WIDTH, INNER)

    def _common(self, *, biases: bool = False, gate: bool = False) -> None:
        """Norms behind attention and feed-forward layers."""
        self._matrix("token_embd.weight", VOCABULARY, WIDTH, scale=8.0)
        self._matrix("token_types.weight", 2, WIDTH)
        self._layer_norm("token_embd_norm")
        for layer in range(LAYERS):
            own = f"blk.{layer}."
            shapes = {"attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "attn_v": (WIDTH, WIDTH),
                      "attn_output": (WIDTH, WIDTH), "ffn_up": (INNER, WIDTH),
                      "ffn_down": (WIDTH, INNER)}  # fmt: skip
            for name, shape in shapes.items():
                self._matrix(f"{own}{name}.weight", *shape, scale=1.5)
                if biases:
                    self._vector(f"{own}{name}.bias", shape[0])
            if gate:
                self._matrix(own + "ffn_gate.weight", INNER, WIDTH)
            self._layer_norm(own + "attn_output_norm")
            self._layer_norm(own + "layer_output_norm")

    def _matrix(self, name: str, *shape: int, scale: float = 1.0) -> None:
        values = self._rng.standard_normal(shape) * scale / math.sqrt(shape[-1])
        kind = self._encoding(name, len(shape))
        written = quants.quantize(values.astype(np.float32), kind)
        self.tensors[name] = quants.dequantize(written, kind).astype(np.float64)

    def _vector(self, name: str, length: int, *, mean: float = 0.0) -> None:
        values = mean + 0.1 * self._rng.standard_normal(length)
        self.tensors[name] = values.astype(np.float32).astype(np.float64)

    def _layer_norm(self, name: str) -> None:
        self._vector(f"{name}.weight", WIDTH, mean=1.0)
        self._vector(f"{name}.bias", WIDTH)

    # The arithmetic.

    def _dense(self, rows: np.ndarray, name: str) -> np.ndarray:
        return rows @ self.tensors[f"{name}.weight"].T + self.tensors.get(f"{name}.bias", 0.0)

    def _norm(self, rows: np.ndarray, name: str) -> np.ndarray:
        if name + ".weight" not in self.tensors:  # ModernBERT's first one
            return rows
        if self.architecture not in _SQUARES:
            rows = rows - rows.mean(-1, keepdims=True)
        rows = rows / np.sqrt((rows**2).mean(-1, keepdims=True) + _EPSILON)
        return rows * self.tensors[f"{name}.weight"] + self.tensors.get(f"{name}.bias", 0.0)

    def _inner(self, rows: np.ndarray, own: str) -> np.ndarray:
        if own + "ffn_gate_inp.weight" in self.tensors:
            return self._experts(rows, own)
        up = self._dense(rows, own + "ffn_up")
        act = _silu if self.architecture in ("nomic-bert", "neo-bert", "eurobert") else _gelu
        if up.shape[1] == 2 * INNER:
            gate, up = up[:, :INNER], up[:, INNER:]
            return self._dense(act(gate) * up, own + "ffn_down")
        if own + "ffn_gate.weight" not in self.tensors:
            return self._dense(_gelu(up), own + "ffn_down")
        gate = self._dense(rows, own + "ffn_gate")
        return self._dense(act(gate) * up, own + "ffn_down")

    def _experts(self, rows: np.ndarray, own: str) -> np.ndarray:
        """The likeliest ones of each token, by their probabilities among all."""
        chances = np.exp(self._dense(rows, own + "ffn_gate_inp"))
        chances /= chances.sum(-1, keepdims=True)
        up, down = (self.tensors[f"{own}ffn_{part}_exps.weight"] for part in ("up", "down"))
        made = np.zeros_like(rows)
        for place, row in enumerate(rows):
            for expert in np.argsort(-chances[place])[:USED]:
                made[place] += chances[place, expert] * (down[expert] @ _gelu(up[expert] @ row))
        return made

    def _attention(self, rows: np.ndarray, own: str, layer: int) -> np.ndarray:
        count, name = len(rows), self.architecture
        if own + "attn_qkv.weight" in self.tensors:
            parts = np.split(self._dense(rows, own + "attn_qkv"), 3, axis=1)
        else:
            parts = [self._dense(rows, own + "attn_" + part) for part in "qkv"]
        query, key, value = (
            part.reshape(count, HEADS, _HEAD).transpose(1, 0, 2) for part in parts
        )  # fmt: skip
        if own + "attn_q_norm.weight" in self.tensors:
            query, key = (
                self._norm(query, own + "attn_q_norm"),
                self._norm(key, own + "attn_k_norm"),
            )
        # ModernBERT looks at all in the first of three layers, Gemma in the last one.
        window = name in _WINDOWED and layer % 3 != (0 if name == "modern-bert" else 2)
        base = 1000.0 if name in _ROTATED else None
        if name in _WINDOWED:
            base = 100.0 if window else 10_000.0
        if base is not None:
            pairs = name == "neo-bert"
            query, key = _rotated(query, base, pairs=pairs), _rotated(key, base, pairs=pairs)
        scores = query @ key.transpose(0, 2, 1)
        scores = scores if name == "t5encoder" else scores / math.sqrt(_HEAD)
        far = np.arange(count)[None, :] - np.arange(count)[:, None]
        if name == "t5encoder":
            scores = scores + self.tensors["enc.blk.0.attn_rel_b.weight"][_bucket(far)].transpose(
                2, 0, 1
            )
        if name == "jina-bert-v2":
            slopes = 2.0 ** (-8.0 / HEADS * np.arange(1, HEADS + 1))
            scores = scores - slopes[:, None, None] * np.abs(far)
        if window:
            scores = np.where(np.abs(far) > WINDOW // 2, -np.inf, scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = weights / weights.sum(-1, keepdims=True) @ value
        out = "attn_o" if name == "t5encoder" else "attn_output"
        return self._dense(mixed.transpose(1, 0, 2).reshape(count, WIDTH), own + out)


def _gelu(values: np.ndarray) -> np.ndarray:
    return values / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (values + 0.044715 * values**3)))


def _silu(values: np.ndarray) -> np.ndarray:
    return values / (1 + np.exp(-values))


def _rotated(rows: np.ndarray, base: float, *, pairs: bool) -> np.ndarray:
    """Of each head the two halves against each other, or in pairs each element and the next."""
    half = _HEAD // 2
    if pairs:
        order = [*range(0, _HEAD, 2), *range(1, _HEAD, 2)]
        return _rotated(rows[..., order], base, pairs=False)[..., np.argsort(order)]
    places = np.array([[float(place)] for place in range(rows.shape[1])])
    angles = places * np.array([base ** (-turn / half) for turn in range(half)])
    first, second = rows[..., :half], rows[..., half:]
    return np.concatenate(
        [
            first * np.cos(angles) - second * np.sin(angles),
            first * np.sin(angles) + second * np.cos(angles),
        ],
        axis=-1,
    )


def _bucket(far: np.ndarray) -> np.ndarray:
    """T5's buckets of distances, key minus query."""
    half = BUCKETS // 2
    exact, ahead, far = half // 2, (far > 0) * half, np.abs(far)
    large = exact + np.log(np.maximum(far, 1) / exact) * (half - exact) / math.log(128 / exact)
    return ahead + np.where(far < exact, far, np.minimum(large.astype(int), half - 1))


ARCHITECTURES: tuple[str, ...] = (
    "bert", "xlm-roberta", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3",
    "modern-bert", "neo-bert", "eurobert", "gemma-embedding", "t5encoder",
)  # fmt: skip
_SQUARES = frozenset({"neo-bert", "eurobert", "gemma-embedding", "t5encoder"})
_ROTATED = frozenset({"nomic-bert", "nomic-bert-moe", "jina-bert-v3", "neo-bert", "eurobert"})
_WINDOWED = frozenset({"modern-bert", "gemma-embedding"})
# Matrices that the converter keeps in F32, by the ends of their names.
_PLAIN = ("ffn_gate_inp.weight", "position_embd.weight", "token_types.weight")


_F16 = 1
YES_NO = np.random.default_rng(5).standard_normal((2, 64)).astype(np.float16).astype(np.float32)
TEMPLATE = "<s>question: {query} text: {document}</s>"


def write_qwen3(path: Path, *, reranks: bool) -> Path:
    """A Qwen3 that makes vectors of last tokens, or one with a head for yes and no."""
    model = Model("qwen3", layers=2)
    model.keys({"attention.key_length": HEAD, "attention.value_length": HEAD})
    model.keys(pooling_type=4 if reranks else 3)
    for layer in range(2):
        own = f"blk.{layer}."
        model.norm(f"{own}attn_norm.weight", WIDTH)
        model.attention(own, norms=True)
        model.feed_forward(own)
    if reranks:
        model.keys({"classifier.output_labels": array(STR, ["yes", "no"])})
        head = Tensor("cls.output.weight", YES_NO.shape[::-1], _F16, YES_NO.astype("<f2").tobytes())
        model.gguf.tensors.append(head)
        model.gguf.keys["tokenizer.chat_template.rerank"] = text(TEMPLATE)
    return model.write(path)
