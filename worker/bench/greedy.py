"""Greedy continuations, and where a level's leave the reference's."""

from __future__ import annotations

import msgspec
import numpy as np

from worker.bench.corpus import Windows
from worker.llama.backend import LlamaBackend

PROMPT_TOKENS = 32


class Greedy(msgspec.Struct, frozen=True, kw_only=True):
    """`first_difference` of each prompt: index of the first other token, from 0; None: no other.

    median_first_difference counts a continuation without one as its full length
    """

    prompts: int
    tokens: int
    identical: int
    first_difference: tuple[int | None, ...]
    median_first_difference: float


def continue_greedily(
    backend: LlamaBackend, windows: Windows, prompts: int, tokens: int
) -> list[list[int]]:
    """The likeliest `tokens` tokens after the beginnings of some windows, side by side.

    Ends of generation are tokens like any other. At most one prompt for each slot.
    """
    count = min(prompts, len(windows.tokens), backend.num_slots)
    length = min(PROMPT_TOKENS, windows.tokens.shape[1])
    starts = [windows.tokens[i * len(windows.tokens) // count][:length] for i in range(count)]
    last: list[int] = []
    for slot, start in enumerate(starts):
        backend.drop(slot)
        backend.batch.clear()
        backend.batch.add(start, 0, slot)
        backend.batch.outputs[length - 1] = 1
        backend.decode()
        last.append(int(backend.logits(length - 1).argmax()))
    texts = [[token] for token in last]
    for step in range(tokens - 1):
        backend.batch.clear()
        for slot, text in enumerate(texts):
            backend.batch.add_one(text[-1], length + step, slot)
        backend.decode()
        for slot, text in enumerate(texts):
            text.append(int(backend.logits(slot).argmax()))
    for slot in range(count):
        backend.drop(slot)
    return texts


def compare_greedy(reference: list[list[int]], level: list[list[int]]) -> Greedy:
    """Where the level's continuations leave the reference's; the same prompts for both."""
    first = tuple(
        next((i for i, (a, b) in enumerate(zip(wanted, got, strict=True)) if a != b), None)
        for wanted, got in zip(reference, level, strict=True)
    )
    length = len(reference[0])
    places = [length if place is None else place for place in first]
    return Greedy(
        prompts=len(first),
        tokens=length,
        identical=first.count(None),
        first_difference=first,
        median_first_difference=float(np.median(places)),
    )
