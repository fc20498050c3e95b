"""BERTs as GGUF files, and what they say, computed in numpy from the same weights.

Nothing here shares code with the worker: tokens are made by WordPiece as BERT defines it, and the
arithmetic is written from the definitions, in float64.
"""

from __future__ import annotations

import json
import math
import struct
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np

from checks.real.onnx import weights_of
from checks.real.weights import MINILM, vectrix
from tests.support.models.ggufs import (
    BOOL,
    I32,
    STR,
    Gguf,
    Key,
    Tensor,
    array,
    f32,
    text,
    u32,
)

_NAMES = {
    "attention.self.query": "attn_q", "attention.self.key": "attn_k",
    "attention.self.value": "attn_v", "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
}  # fmt: skip
_HEADS, _EPSILON = 12, 1e-12
_CLS, _SEP, _UNK = 101, 102, 100
_LONGEST_WORD = 100
_NONE, _MEAN, _FIRST = 0, 1, 2  # llama.cpp's numbers of poolings
_F16 = 1
_PLACES = np.linspace(-6, 6, 200_001)
# Between two of them it is off by 1e-9.
_ERF = np.array([math.erf(place) for place in _PLACES.tolist()])


def mini_lm() -> Bert:
    """all-MiniLM-L6-v2: the mean of all tokens."""
    return Bert("all-MiniLM-L6-v2", _safetensors(MINILM.path), MINILM.path.parent, pooling=_MEAN)


def bge_small() -> Bert:
    """bge-small-en-v1.5: the first token's."""
    return _vectrix("bge-small-en-v1.5", "bge_small_en", pooling=_FIRST)


def colbert() -> Bert:
    """answerai-colbert-small-v1 without its projection: a vector for each token."""
    return _vectrix("answerai-colbert-small-v1", "colbert", pooling=_NONE)


def cross_encoder() -> Bert:
    """ms-marco-MiniLM-L-12-v2, whose classifier reads pairs. Its file says no pooling."""
    return _vectrix("ms-marco-MiniLM-L-12-v2", "reranker_en", pooling=None)


def _vectrix(name: str, model: str, *, pooling: int | None) -> Bert:
    path = vectrix(model)
    return Bert(name, weights_of(path / "model.onnx"), path, pooling=pooling)


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    head: dict[str, Any] = json.loads(raw[8 : 8 + length])
    weights: dict[str, np.ndarray] = {}
    for name, entry in head.items():
        if entry.get("dtype") == "F32":
            begin, end = entry["data_offsets"]
            values = np.frombuffer(raw[8 + length + begin : 8 + length + end], "<f4")
            weights[name] = values.reshape(entry["shape"])
    return weights


class Bert:
    """The weights, by the names that torch has for them."""

    def __init__(
        self, name: str, weights: dict[str, np.ndarray], tokenizer: Path, *, pooling: int | None
    ) -> None:
        """tokenizer: the folder of tokenizer.json; pooling: llama.cpp's number, None: none"""
        self.name, self.weights, self.pooling = name, weights, pooling
        self.layers = 1 + max(int(each.split(".")[2]) for each in weights if ".layer." in each)
        self._exact = {name: values.astype(np.float64) for name, values in weights.items()}
        made = json.loads((tokenizer / "tokenizer.json").read_text())
        self.vocabulary: dict[str, int] = made["model"]["vocab"]

    def tokens(self, words: str) -> list[int]:
        """[CLS] the text's word pieces [SEP]."""
        return [_CLS, *self._words(words), _SEP]

    def pair(self, first: str, second: str) -> list[int]:
        """[CLS] first [SEP] second [SEP]."""
        return [*self.tokens(first), *self._words(second), _SEP]

    def _words(self, words: str) -> list[int]:
        return [piece for word in _words(words) for piece in self._pieces(word)]

    def _pieces(self, word: str) -> list[int]:
        if len(word) > _LONGEST_WORD:
            return [_UNK]
        made: list[int] = []
        begin = 0
        while begin < len(word):
            for end in range(len(word), begin, -1):
                piece = ("##" if begin else "") + word[begin:end]
                if piece in self.vocabulary:
                    made.append(self.vocabulary[piece])
                    begin = end
                    break
            else:
                return [_UNK]
        return made

    def vector(self, tokens: list[int]) -> np.ndarray:
        """Of a text, of length 1: float64 [384], or without pooling [tokens, 384]."""
        rows = self._rows(tokens)
        rows = {_MEAN: rows.mean(0), _FIRST: rows[0]}.get(self.pooling or 0, rows)
        return rows / np.linalg.norm(rows, axis=-1, keepdims=True)

    def score(self, tokens: list[int]) -> float:
        """The classifier's logit of a pair."""
        pooled = np.tanh(self._dense(self._rows(tokens)[0], "pooler.dense"))
        return float(self._dense(pooled, "classifier")[0])

    def _dense(self, rows: np.ndarray, name: str) -> np.ndarray:
        return rows @ self._exact[f"{name}.weight"].T + self._exact[f"{name}.bias"]

    def _rows(self, tokens: list[int]) -> np.ndarray:
        """What the last layer says, float64 [tokens, 384]."""
        get, dense = self._exact.__getitem__, self._dense
        types = (np.cumsum(np.array([0, *tokens[:-1]]) == _SEP) > 0).astype(int)

        def norm(rows: np.ndarray, name: str) -> np.ndarray:
            rows = rows - rows.mean(-1, keepdims=True)
            rows = rows / np.sqrt((rows**2).mean(-1, keepdims=True) + _EPSILON)
            return rows * get(f"{name}.weight") + get(f"{name}.bias")

        rows = get("embeddings.word_embeddings.weight")[tokens]
        rows = rows + get("embeddings.position_embeddings.weight")[: len(tokens)]
        rows = rows + get("embeddings.token_type_embeddings.weight")[types]
        rows = norm(rows, "embeddings.LayerNorm")
        for layer in range(self.layers):
            own = f"encoder.layer.{layer}."
            query, key, value = (
                dense(rows, f"{own}attention.self.{part}")
                .reshape(len(tokens), _HEADS, -1)
                .transpose(1, 0, 2)
                for part in ("query", "key", "value")
            )
            scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            mixed = scores / scores.sum(-1, keepdims=True) @ value
            mixed = mixed.transpose(1, 0, 2).reshape(len(tokens), -1)
            mixed = dense(mixed, f"{own}attention.output.dense")
            rows = norm(rows + mixed, f"{own}attention.output.LayerNorm")
            inner = dense(rows, f"{own}intermediate.dense")
            inner = inner / 2 * (1 + np.interp(inner / math.sqrt(2), _PLACES, _ERF))
            rows = norm(rows + dense(inner, f"{own}output.dense"), f"{own}output.LayerNorm")
        return rows

    def write(self, path: Path, *, pooler: bool = True) -> Path:
        """The model as llama.cpp's converter writes it, matrices in F16; returns `path`.

        pooler  keep that of a classifier, which the converter leaves out
        """
        words = [_as_written(word) for word in self.vocabulary]
        specials = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
        kinds = [3 if word in specials else 1 for word in self.vocabulary]
        gguf = Gguf(
            keys={
                "general.architecture": text("bert"),
                "general.type": text("model"),
                "general.name": text(self.name),
                "general.file_type": u32(_F16),
                "bert.block_count": u32(self.layers),
                "bert.context_length": u32(512),
                "bert.embedding_length": u32(384),
                "bert.feed_forward_length": u32(1536),
                "bert.attention.head_count": u32(_HEADS),
                "bert.attention.layer_norm_epsilon": f32(_EPSILON),
                "bert.attention.causal": Key(BOOL, 0),
                "tokenizer.ggml.model": text("bert"),
                "tokenizer.ggml.pre": text("default"),
                "tokenizer.ggml.token_type_count": u32(2),
                "tokenizer.ggml.tokens": array(STR, words),
                "tokenizer.ggml.token_type": array(I32, kinds),
                "tokenizer.ggml.unknown_token_id": u32(100),
                "tokenizer.ggml.seperator_token_id": u32(102),
                "tokenizer.ggml.padding_token_id": u32(0),
                "tokenizer.ggml.cls_token_id": u32(101),
                "tokenizer.ggml.mask_token_id": u32(103),
            }
        )
        if self.pooling is not None:
            gguf.keys["bert.pooling_type"] = u32(self.pooling)
        if "classifier.weight" in self.weights:
            gguf.keys["bert.classifier.output_labels"] = array(STR, ["LABEL_0"])
        for name, values in self.weights.items():
            called = self._called(name, pooler=pooler)
            if called is None:
                continue
            is_matrix = values.ndim > 1 and called not in ("position_embd.weight",
                                                           "token_types.weight")  # fmt: skip
            data = values.astype("<f2" if is_matrix else "<f4").tobytes()
            gguf.tensors.append(Tensor(called, values.shape[::-1], int(is_matrix), data))
        return gguf.write(path)

    def _called(self, name: str, *, pooler: bool) -> str | None:
        """A tensor's name in a GGUF file; None: it is not needed."""
        own, _, kind = name.rpartition(".")
        fixed = {
            "embeddings.word_embeddings": "token_embd",
            "embeddings.position_embeddings": "position_embd",
            "embeddings.token_type_embeddings": "token_types",
            "embeddings.LayerNorm": "token_embd_norm",
        }
        if "classifier.weight" in self.weights:
            fixed["classifier"] = "cls.output"
            if pooler:
                fixed["pooler.dense"] = "cls"
        if own in fixed:
            return f"{fixed[own]}.{kind}"
        if not own.startswith("encoder.layer."):
            return None
        _, _, layer, rest = own.split(".", 3)
        return f"blk.{layer}.{_NAMES[rest]}.{kind}"


def _as_written(word: str) -> str:
    """As the converter writes a word piece: a mark where a word begins, not where it goes on."""
    if word.startswith("[") and word.endswith("]"):
        return word
    return word[2:] if word.startswith("##") else "\N{LOWER ONE EIGHTH BLOCK}" + word


def _words(words: str) -> list[str]:
    """BERT's words: lower case without accents, punctuation by itself."""
    words = unicodedata.normalize("NFD", words.lower())
    spaced = "".join(
        f" {c} "
        if unicodedata.category(c)[0] == "P" or c in "$+<=>^`|~" or "\u4e00" <= c <= "\u9fff"
        else c
        for c in words
        if unicodedata.category(c) != "Mn"
    )
    return spaced.split()
