"""Writes a model that says what the stories prescribe, and costs what a 0.5B model does.

    python -m benchmarks.session.model out.gguf

Its first layers are a table, as `tests.support.models.reciting` explains it: a token finds the
LOOKS tokens before it and the last ticket of the prompt, and a unit of the feed-forward layer is
on where all of them are those of one place of one answer; it writes the code of the token that
follows. The other layers compute and add nothing, and most of the vocabulary is never said. So
every server writes the same, with and without guesses, and ends where the answer does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from benchmarks.drafts import tensors_in
from benchmarks.models import write_model
from benchmarks.session.story import Ask, story
from benchmarks.shapes import SHAPES, ModelShape
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights

AGENTS = 3
SHAPE = SHAPES["reciting-0.5b"]
_OPENING = "<|im_end|>\n<|im_start|>assistant\n"
_END = 2  # the vocabulary's token
_BITS = 32  # of a code: 26 of them are the number, two codes differ in at least four
_LOOKS = 13
_DISTANCES = np.arange(1, _LOOKS + 1)
_PLACES = [place for place in range(1, _BITS) if place & (place - 1)]
_TABLES = 3  # layers that hold the places
_OWN, _TAG, _ONE, _LOOKED = 0, _BITS, 2 * _BITS, 3 * _BITS
_CUE, _NEXT = _LOOKED + _LOOKS * _BITS, _LOOKED + (_LOOKS + 1) * _BITS
_PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_SHARP, _GAIN = 100.0, 8.0  # of attention's scores; of logits for each bit


class _Rule(NamedTuple):
    """After `last`, the newest first, where `cue` is the prompt's last one, `then` follows."""

    last: tuple[int, ...]
    cue: int
    then: int


def write_reciting(path: Path, stories: Sequence[Sequence[Ask]], shape: ModelShape = SHAPE) -> Path:
    """Write the model that says the answers of these stories; returns `path`.

    Raises ValueError where a place of an answer cannot be told from another, or the shape has too
    few layers.
    """
    layers = [f"blk.{number}." for number in range(shape.layers)]
    exact = ["token_embd.weight", "output.weight"]
    for layer in layers[:_TABLES]:
        exact += [f"{layer}{part}.weight" for part in _PARTS]
    write_model(path, shape, "Q4_0", encodings=dict.fromkeys(exact, Type.Q8_0))
    tensors = tensors_in(path)
    for layer in layers:
        for part in ("attn_output", "ffn_down"):
            tensors[f"{layer}{part}.weight"][1][:] = 0
    rules, cues = _rules_of(path, stories)
    if len(rules) > min(_TABLES, shape.layers) * shape.feed_forward:
        raise ValueError(f"{len(rules)} places of answers need more layers or shorter answers")
    for name, values in _values(rules, cues, shape):
        data = tensors[name][1]
        if values.ndim == 1:
            data[:] = values.astype(np.float32).view(np.uint8)
        else:
            data[:] = gguf.quants.quantize(values.astype(np.float32), Type.Q8_0).reshape(-1)
    return path


def _rules_of(path: Path, stories: Sequence[Sequence[Ask]]) -> tuple[list[_Rule], list[int]]:
    """All places, and the tokens of the cues in their order."""
    rules: dict[tuple[int, tuple[int, ...]], int] = {}
    cues: list[int] = []
    with Weights(path, LoadOptions(vocab_only=True)) as weights:
        vocab = Vocab(weights.handle, 0)
        for said in stories:
            for ask in said:
                cue = ask.messages[-1].content.rpartition(" ")[2]
                cues.append(_tokens(vocab, f"a {cue}")[-1])
                opening = len(_tokens(vocab, _OPENING))
                tokens = [*_tokens(vocab, _OPENING + ask.answer), _END]
                for place in range(opening, len(tokens)):
                    last = tuple(tokens[place - 1 : place - _LOOKS - 2 : -1])
                    if rules.setdefault((len(cues), last), tokens[place]) != tokens[place]:
                        before = b"".join(vocab.spelled[token] for token in reversed(last))
                        raise ValueError(f"two tokens follow {before!r} in {ask.answer!r}")
    return [_Rule(last, cue, then) for (cue, last), then in rules.items()], cues


def _tokens(vocab: Vocab, text: str) -> list[int]:
    return vocab.tokenize(text, add_special=False, parse_special=False)


def _codes(numbers: np.ndarray) -> np.ndarray:
    """Numbers below 2 ** 26 in an extended Hamming code, as rows of +1 and -1."""
    bits = np.zeros((len(numbers), _BITS), np.int64)
    for bit, place in enumerate(_PLACES):
        bits[:, place] = numbers >> bit & 1
    for parity in (1, 2, 4, 8, 16):
        bits[:, parity] = bits[:, [p for p in _PLACES if p & parity]].sum(1) % 2
    bits[:, 0] = bits.sum(1) % 2
    return 2 * bits - 1


def _values(
    rules: Sequence[_Rule], cues: Sequence[int], shape: ModelShape
) -> Iterator[tuple[str, np.ndarray]]:
    """Names and values, rows first. Norms have weights that undo the division by the length."""
    width = shape.embedding
    codes = _codes(np.arange(shape.vocab))
    tags = _codes(np.arange(len(cues) + 1))
    embedding = np.zeros((shape.vocab, width), np.float32)
    embedding[:, _OWN:_TAG] = codes
    embedding[:, _TAG:_ONE] = tags[0]
    embedding[list(cues), _TAG:_ONE] = tags[1:]
    embedding[:, _ONE] = 1
    yield "token_embd.weight", embedding
    output = np.zeros((shape.vocab, width), np.float32)
    output[:, _NEXT : _NEXT + _BITS] = _GAIN * codes
    output[_END, _ONE] = 5 * _GAIN
    yield "output.weight", output

    def norm(parts: int) -> np.ndarray:
        """For vectors with so many codes and the 1; all else is 0."""
        return np.full(width, np.sqrt((parts * _BITS + 1) / width))

    yield "output_norm.weight", norm(_LOOKS + 4)
    yield "blk.0.attn_norm.weight", norm(2)
    for part, values in _attention(shape, len(cues)).items():
        yield f"blk.0.attn_{part}.weight", values
    tables = min(_TABLES, shape.layers)
    for layer in range(tables):
        gate, down, up = (np.zeros((shape.feed_forward, width), np.float32) for _ in range(3))
        for unit, rule in enumerate(rules[layer::tables]):
            wanted = codes[list(rule.last)]
            gate[unit, _OWN:_TAG] = wanted[0]
            gate[unit, _LOOKED : _LOOKED + wanted[1:].size] = wanted[1:].ravel()
            gate[unit, _CUE:_NEXT] = tags[rule.cue]
            # A wrong token costs at least 8. What is left is 4 where all is right.
            gate[unit, _ONE] = 4 - _BITS * (len(wanted) + 1)
            down[unit, _NEXT : _NEXT + _BITS] = codes[rule.then]
        up[:, _ONE] = 1 / (4 * 8)
        yield f"blk.{layer}.ffn_norm.weight", norm(_LOOKS + 3)
        yield f"blk.{layer}.ffn_gate.weight", 8 * gate
        yield f"blk.{layer}.ffn_up.weight", up
        yield f"blk.{layer}.ffn_down.weight", down.T


def _attention(shape: ModelShape, cues: int) -> dict[str, np.ndarray]:
    """Keys are a constant, and each head's query is turned back by its distance.

    Only in the pair of values that hardly turns a cue's key is its number: the last head finds the
    last cue there.
    """
    head, width = shape.head_dim, shape.embedding
    angles = shape.rope_base ** (-np.arange(head // 2) / (head / 2))
    q, k, v = (np.zeros((heads, head, width)) for heads in (shape.heads, *[shape.kv_heads] * 2))
    output = np.zeros((width, shape.heads, head))
    k[:, 0 : head - 2 : 2, _ONE] = 1
    for bit in range(cues.bit_length()):
        k[:, head - 2, _TAG + _PLACES[bit]] = 2**bit / 2
        k[:, head - 2, _ONE] += 2**bit / 2
    v[:, : 2 * _BITS, _OWN : _OWN + 2 * _BITS] = np.eye(2 * _BITS)
    q[:_LOOKS, 0 : head - 2 : 2, _ONE] = np.cos(np.outer(_DISTANCES, angles[:-1]))
    q[:_LOOKS, 1 : head - 2 : 2, _ONE] = -np.sin(np.outer(_DISTANCES, angles[:-1]))
    q[_LOOKS, head - 2, _ONE] = 1
    for look in range(_LOOKS):
        place = _LOOKED + _BITS * look
        output[place : place + _BITS, look, :_BITS] = np.eye(_BITS)
    output[_CUE:_NEXT, _LOOKS, _BITS : 2 * _BITS] = np.eye(_BITS)
    parts = {"q": q * _SHARP * np.sqrt(head), "k": k, "v": v}
    return {n: part.reshape(-1, width) for n, part in parts.items()} | {
        "output": output.reshape(width, -1)
    }


def main() -> None:
    """Write the model of all agents' stories."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("path", type=Path)
    write_reciting(parser.parse_args().path, [story(agent) for agent in range(AGENTS)])


if __name__ == "__main__":
    main()
