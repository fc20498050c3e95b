"""Writes models that say exactly a given text, through the real engine.

    write(path, [Recital(["<think>", "Rain?", ...])], openings=["<|im_start|>assistant\n"], ...)

A piece is a token, so a text is cut where the test wants it to be cut. A model knows several
texts: which one it says depends on the cue, a text that stands in the prompt. The cue of the last
recital in the list that is there counts, so a tool's result leads to the next call.

The weights are a table. A token looks at the tokens before it and at the cue; the feed-forward
layer has a unit for each place of each text, which is on where all of them are the right ones and
writes the code of the token that follows. Logits are so far apart that temperature changes
nothing. Where no unit is on, the model ends its answer.

    embedding      own code | tag | 1 |                 a tag is the code of a cue, or of none
    attention      one head for each of the LOOKS tokens before, one that finds the cue
    feed forward   unit: all codes match -> code of the next token
    output         code . code
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.support.models.ggufs import Gguf, Tensor, f32, text, u32
from tests.support.models.recited import Words, words_of

LOOKS = 7  # tokens that are looked at besides the last one
BITS = 16  # of a code: 11 of them are the number, two codes differ in at least four
HEAD = 32  # of which values take BITS, and rotations all
BASE = 1e8  # of the rotations: the slowest one stands still
OWN, TAG, ONE = 0, BITS, 2 * BITS
LOOKED = ONE + 1
CUE, NEXT = LOOKED + LOOKS * BITS, LOOKED + (LOOKS + 1) * BITS
WIDTH = 192
CONTEXT = 8192
SHARP = 100.0  # scores of an attention's choice over the next best, before the softmax
GAIN = 8.0  # logits for each bit of a code


@dataclass(frozen=True)
class Recital:
    """A text and when it is said.

    pieces  its tokens; control tokens are spelled out
    cue     a text in the prompt; empty: where no cue is there
    after   what the prompt ends with; empty: any of the model's openings
    end     the token that ends it; empty: the model's own
    """

    pieces: Sequence[str]
    cue: str = ""
    after: Sequence[str] = ()
    end: str = ""


@dataclass(frozen=True)
class _Rule:
    """After `last`, the newest first, where the cue is there, `then` follows."""

    last: tuple[int, ...]
    cue: int
    then: int


def write(
    path: Path,
    recitals: Sequence[Recital],
    *,
    openings: Sequence[str],
    template: str | None = None,
    controls: Sequence[str] = (),
    shown: Sequence[str] = (),
    bos: str = "<s>",
    end: str = "</s>",
    name: str = "reciting",
) -> Path:
    """Write a model; returns `path`. Raises ValueError where a text would lose its thread.

    openings  what prompts end with, control tokens spelled out
    controls  the vocabulary's control tokens, besides bos and end
    shown     tokens of the same sort whose text is shown, as `<think>` is in many files
    """
    cues = [recital.cue for recital in recitals if recital.cue]
    texts = [recital.pieces for recital in recitals]
    words = words_of(texts, [bos, end, *controls], shown, cues)
    rules = _rules_of(recitals, openings, words, words.ids[end])
    gguf = Gguf(keys=words.keys(bos, end))
    for key, value in {
        "general.architecture": text("llama"),
        "general.type": text("model"),
        "general.name": text(name),
        "general.file_type": u32(0),
        "llama.block_count": u32(1),
        "llama.context_length": u32(CONTEXT),
        "llama.embedding_length": u32(WIDTH),
        "llama.feed_forward_length": u32(len(rules)),
        "llama.attention.head_count": u32(LOOKS + 1),
        "llama.attention.head_count_kv": u32(LOOKS + 1),
        "llama.attention.key_length": u32(HEAD),
        "llama.attention.value_length": u32(HEAD),
        "llama.attention.layer_norm_rms_epsilon": f32(1e-9),
        "llama.rope.dimension_count": u32(HEAD),
        "llama.rope.freq_base": f32(BASE),
        "llama.vocab_size": u32(len(words.tokens)),
    }.items():
        gguf.keys[key] = value
    if template is not None:
        gguf.keys["tokenizer.chat_template"] = text(template)
    for tensor, values in _tensors(words, rules, words.ids[end]):
        shape = values.shape[::-1]  # ggml's: the row first
        gguf.tensors.append(Tensor(tensor, shape, 0, values.astype("<f4").tobytes()))
    return gguf.write(path)


def _rules_of(
    recitals: Sequence[Recital], openings: Sequence[str], words: Words, end: int
) -> list[_Rule]:
    places: list[tuple[list[int], int, int]] = []  # tokens so far, cue, what follows
    rules: dict[_Rule, None] = {}
    table: defaultdict[tuple[int, tuple[int, ...]], set[int]] = defaultdict(set)
    for recital in recitals:
        said = [token for piece in recital.pieces for token in words.spell(piece)]
        cue = words.ids[recital.cue] if recital.cue else -1
        for opening in recital.after or openings:
            tokens = words.read(opening)
            for token in [*said, words.ids[recital.end] if recital.end else end]:
                places.append((list(tokens), cue, token))
                last = tuple(tokens[: -LOOKS - 2 : -1])
                rules[_Rule(last, cue, token)] = None
                table[cue, last].add(token)
                tokens.append(token)
    for tokens, cue, token in places:
        last = tuple(tokens[: -LOOKS - 2 : -1])
        # A rule near the beginning of a text looks at fewer tokens.
        found = {then for n in range(len(last)) for then in table.get((cue, last[: n + 1]), ())}
        if found != {token}:
            text = [words.tokens[each] for each in tokens[-LOOKS - 1 :]]
            after = [words.tokens[each] for each in found]
            raise ValueError(f"after {text} several tokens would follow: {after}; cut otherwise")
    return list(rules)


def _code(number: int) -> np.ndarray:
    """The number in an extended Hamming code, as +1 and -1."""
    bits = np.zeros(BITS, np.int64)
    places = [place for place in range(1, BITS) if place & (place - 1)]
    if number >= 1 << len(places):
        raise ValueError(f"{number} is too large: a model has at most {1 << len(places)} tokens")
    for bit, place in enumerate(places):
        bits[place] = number >> bit & 1
    for parity in (1, 2, 4, 8):
        bits[parity] = sum(bits[place] for place in places if place & parity) % 2
    bits[0] = bits.sum() % 2
    return 2 * bits - 1


def _tensors(words: Words, rules: list[_Rule], end: int) -> Iterator[tuple[str, np.ndarray]]:
    """Names and values, rows first. Norms have weights that undo the division by the length."""
    codes = np.array([_code(token) for token in range(len(words.tokens))])
    tags = {cue: _code(number + 1) for number, cue in enumerate(words.cues)}
    none = _code(0)
    embedding = np.zeros((len(codes), WIDTH))
    embedding[:, OWN:TAG] = codes
    embedding[:, TAG:ONE] = [tags.get(token, none) for token in range(len(codes))]
    embedding[:, ONE] = 1
    yield "token_embd.weight", embedding

    def norm(count: int) -> np.ndarray:
        """For vectors with so many elements that are 1 or -1; the others are 0."""
        return np.full(WIDTH, np.sqrt(count / WIDTH))

    yield "output_norm.weight", norm(NEXT + BITS)
    output = np.zeros((len(codes), WIDTH))
    output[:, NEXT : NEXT + BITS] = GAIN * codes
    output[end, ONE] = 5 * GAIN
    yield "output.weight", output
    yield "blk.0.attn_norm.weight", norm(LOOKED)
    for part, values in _attention(len(words.cues)):
        yield f"blk.0.attn_{part}.weight", values
    yield "blk.0.ffn_norm.weight", norm(NEXT)
    gate, down = np.zeros((len(rules), WIDTH)), np.zeros((WIDTH, len(rules)))
    for unit, rule in enumerate(rules):
        wanted = codes[list(rule.last)]
        gate[unit, OWN:TAG] = wanted[0]
        gate[unit, LOOKED : LOOKED + wanted[1:].size] = wanted[1:].ravel()
        gate[unit, CUE:NEXT] = tags.get(rule.cue, none)
        # A wrong token costs at least 8. What is left is 4 where all is right.
        gate[unit, ONE] = 4 - BITS * (len(wanted) + 1)
        down[NEXT : NEXT + BITS, unit] = codes[rule.then]
    yield "blk.0.ffn_gate.weight", 8 * gate
    up = np.zeros((len(rules), WIDTH))
    up[:, ONE] = 1 / (4 * 8)
    yield "blk.0.ffn_up.weight", up
    yield "blk.0.ffn_down.weight", down


def _attention(num_cues: int) -> Iterator[tuple[str, np.ndarray]]:
    """Queries and keys are constants that rotations turn: they meet at one distance.

    The last head does without: in the slowest pair nothing turns, and a cue's key is its number.
    """
    rows = {part: np.zeros((LOOKS + 1, HEAD, WIDTH)) for part in "qkv"}
    output = np.zeros((WIDTH, LOOKS + 1, HEAD))
    angles = BASE ** (-np.arange(HEAD // 2) / (HEAD / 2))
    sharp = SHARP * np.sqrt(HEAD)
    for head in range(LOOKS):
        rows["q"][head, 0::2, ONE] = sharp
        rows["k"][head, 0::2, ONE] = np.cos(angles * (head + 1))
        rows["k"][head, 1::2, ONE] = np.sin(angles * (head + 1))
        rows["v"][head, :BITS, OWN:TAG] = np.eye(BITS)
        place = LOOKED + BITS * head
        output[place : place + BITS, head, :BITS] = np.eye(BITS)
    rows["q"][LOOKS, HEAD - 2, ONE] = sharp
    places = [place for place in range(1, BITS) if place & (place - 1)]
    for bit in range(num_cues.bit_length()):
        rows["k"][LOOKS, HEAD - 2, TAG + places[bit]] = 2**bit / 2
        rows["k"][LOOKS, HEAD - 2, ONE] += 2**bit / 2
    rows["v"][LOOKS, :BITS, TAG:ONE] = np.eye(BITS)
    output[CUE:NEXT, LOOKS, :BITS] = np.eye(BITS)
    for part, values in rows.items():
        yield part, values.reshape(-1, WIDTH)
    yield "output", output.reshape(WIDTH, -1)
