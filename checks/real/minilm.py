"""all-MiniLM-L6-v2 as a GGUF file, and what it says, computed in numpy from the same weights.

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

from checks.real.weights import MINILM
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
_HEADS, _LAYERS, _EPSILON = 12, 6, 1e-12
_F16 = 1
_PLACES = np.linspace(-6, 6, 200_001)
# Between two of them it is off by 1e-9.
_ERF = np.array([math.erf(place) for place in _PLACES.tolist()])


class MiniLm:
    """The weights, by the names of the safetensors file."""

    def __init__(self) -> None:
        path = MINILM.path
        raw = path.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        head: dict[str, Any] = json.loads(raw[8 : 8 + length])
        self.weights: dict[str, np.ndarray] = {}
        for name, entry in head.items():
            if entry.get("dtype") == "F32":
                begin, end = entry["data_offsets"]
                values = np.frombuffer(raw[8 + length + begin : 8 + length + end], "<f4")
                self.weights[name] = values.reshape(entry["shape"])
        self._exact = {name: values.astype(np.float64) for name, values in self.weights.items()}
        made = json.loads((path.parent / "tokenizer.json").read_text())
        self.vocabulary: dict[str, int] = made["model"]["vocab"]

    def tokens(self, words: str) -> list[int]:
        """[CLS] the text's word pieces [SEP]."""
        found = [101]
        for word in _words(words):
            found += self._pieces(word)
        return [*found, 102]

    def _pieces(self, word: str) -> list[int]:
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
                return [100]
        return made

    def vector(self, tokens: list[int]) -> np.ndarray:
        """Of a text: the mean of its tokens' hidden states, of length 1; float64 [384]."""

        get = self._exact.__getitem__

        def dense(rows: np.ndarray, name: str) -> np.ndarray:
            return rows @ get(f"{name}.weight").T + get(f"{name}.bias")

        def norm(rows: np.ndarray, name: str) -> np.ndarray:
            rows = rows - rows.mean(-1, keepdims=True)
            rows = rows / np.sqrt((rows**2).mean(-1, keepdims=True) + _EPSILON)
            return rows * get(f"{name}.weight") + get(f"{name}.bias")

        rows = get("embeddings.word_embeddings.weight")[tokens]
        rows = rows + get("embeddings.position_embeddings.weight")[: len(tokens)]
        rows = rows + get("embeddings.token_type_embeddings.weight")[0]
        rows = norm(rows, "embeddings.LayerNorm")
        for layer in range(_LAYERS):
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
        mean = rows.mean(0)
        return mean / np.linalg.norm(mean)

    def write(self, path: Path) -> Path:
        """The model as llama.cpp's converter writes it, matrices in F16; returns `path`."""
        words = [_as_written(word) for word in self.vocabulary]
        specials = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
        kinds = [3 if word in specials else 1 for word in self.vocabulary]
        gguf = Gguf(
            keys={
                "general.architecture": text("bert"),
                "general.type": text("model"),
                "general.name": text("all-MiniLM-L6-v2"),
                "general.file_type": u32(_F16),
                "bert.block_count": u32(_LAYERS),
                "bert.context_length": u32(512),
                "bert.embedding_length": u32(384),
                "bert.feed_forward_length": u32(1536),
                "bert.attention.head_count": u32(_HEADS),
                "bert.attention.layer_norm_epsilon": f32(_EPSILON),
                "bert.attention.causal": Key(BOOL, 0),
                "bert.pooling_type": u32(1),
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
        for name, values in self.weights.items():
            called = _called(name)
            if called is None:
                continue
            is_matrix = values.ndim > 1 and called not in ("position_embd.weight",
                                                           "token_types.weight")  # fmt: skip
            data = values.astype("<f2" if is_matrix else "<f4").tobytes()
            gguf.tensors.append(Tensor(called, values.shape[::-1], int(is_matrix), data))
        return gguf.write(path)


def _called(name: str) -> str | None:
    """A tensor's name in a GGUF file; None: it is not needed."""
    own, _, kind = name.rpartition(".")
    fixed = {
        "embeddings.word_embeddings": "token_embd",
        "embeddings.position_embeddings": "position_embd",
        "embeddings.token_type_embeddings": "token_types",
        "embeddings.LayerNorm": "token_embd_norm",
    }
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
