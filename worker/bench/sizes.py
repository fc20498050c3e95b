"""How much is measured, so that it fits the model's context and the time."""

from __future__ import annotations

from typing import Literal

import msgspec

from worker.bench.sections import TokenCost
from worker.errors import UsageError

Effort = Literal["quick", "normal", "thorough"]
SEED = 7  # of all random prompts


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured.

    window, windows   tokens of a window of text, and how many windows at most
    questions         multiple-choice questions
    greedy_prompts, greedy_tokens  continuations, and their length
    prompt            tokens of a prompt in the speed tests
    depth             tokens before the prompt in the deep tests; 0: the context has no room
    decode            tokens decoded in a repetition
    repetitions       of each speed test; one more runs first and is not counted
    requests          that each stream sends over HTTP, in each of two passes
    loads             of the file, so many from the disk and so many from the cache
    """

    window: int
    windows: int
    questions: int
    greedy_prompts: int
    greedy_tokens: int
    prompt: int
    depth: int
    decode: int
    repetitions: int
    requests: int
    loads: int


# Effort -> sizes, and the seconds that a level may compute. More than that: sizes are cut down.
EFFORTS: dict[Effort, tuple[Sizes, float]] = {
    "quick": (
        Sizes(window=512, windows=8, questions=32, greedy_prompts=4, greedy_tokens=24,
              prompt=128, depth=512, decode=24, repetitions=3, requests=2, loads=1),
        10.0,
    ),
    "normal": (
        Sizes(window=512, windows=24, questions=96, greedy_prompts=8, greedy_tokens=48,
              prompt=512, depth=1024, decode=32, repetitions=5, requests=3, loads=2),
        40.0,
    ),
    "thorough": (
        Sizes(window=512, windows=400, questions=400, greedy_prompts=8, greedy_tokens=128,
              prompt=512, depth=4096, decode=128, repetitions=10, requests=6, loads=5),
        600.0,
    ),
}  # fmt: skip
_LEAST = Sizes(window=128, windows=4, questions=16, greedy_prompts=2, greedy_tokens=16,
               prompt=64, depth=128, decode=16, repetitions=3, requests=2, loads=1)  # fmt: skip

LEAST_S, _MOST_DECODE = 0.03, 64
_LEAST_CONTEXT = 64


def sizes_for(
    effort: Effort, cost: TokenCost, context: int, streams: int, *, quality: bool
) -> Sizes:
    """The effort's sizes, or smaller ones where those would take more seconds than it has.

    context: tokens of the model's longest sequence. Raises UsageError where they are too few.
    """
    if context < _LEAST_CONTEXT:
        raise UsageError(
            f"The model takes {context} tokens at most, too few to measure its speed on.",
            hint=f"Choose one of {_LEAST_CONTEXT} tokens or more.",
        )
    wanted, budget_s = EFFORTS[effort]
    # A repetition of a few milliseconds would measure the clock and the neighbours.
    decode = max(wanted.decode, min(_MOST_DECODE, int(LEAST_S / cost.write_s)))
    wanted = msgspec.structs.replace(wanted, decode=decode)
    sizes, share = _within(wanted, context), 1.0
    for _ in range(20):
        seconds = expected_s(sizes, cost, streams, quality=quality)
        if seconds <= budget_s:
            break
        share *= max(0.3, min(0.95, budget_s / seconds))
        sizes = _within(_scale(wanted, share), context)
    return sizes


def expected_s(sizes: Sizes, cost: TokenCost, streams: int, *, quality: bool) -> float:
    """Seconds that a level's measurements will compute."""
    rounds = sizes.repetitions + 1
    deep = 1 if sizes.depth else 0
    read = rounds * sizes.prompt * (1 + deep) + streams * sizes.depth
    asked = 3 * (sizes.requests + 1)  # in the bare loop, and in both passes over HTTP
    read += asked * sizes.prompt * (1 + streams)
    # A step of several streams takes longer than a step of one, by less than their number.
    many = 1 + 0.5 * (streams - 1)
    write = rounds * sizes.decode * (1 + deep) * (1 + many)
    write += asked * sizes.decode * (1 + many)
    if quality:
        read += sizes.windows * sizes.window + sizes.questions * 35
        write += sizes.greedy_tokens * (1 + 0.5 * (sizes.greedy_prompts - 1))
    return read * cost.read_s + write * cost.write_s


def _scale(sizes: Sizes, share: float) -> Sizes:
    cut = {
        name: max(getattr(_LEAST, name), int(getattr(sizes, name) * share))
        for name in ("windows", "questions", "greedy_tokens", "prompt", "depth", "decode")
    }
    few = {
        name: max(getattr(_LEAST, name), round(getattr(sizes, name) * share**0.5))
        for name in ("repetitions", "requests", "greedy_prompts", "loads")
    }
    return msgspec.structs.replace(sizes, **cut, **few)


def _within(sizes: Sizes, context: int) -> Sizes:
    """Sizes whose longest sequence the model's context holds."""
    prompt = max(1, min(sizes.prompt, context // 4))
    decode = max(1, min(sizes.decode, context // 4))
    return msgspec.structs.replace(
        sizes,
        prompt=prompt,
        decode=decode,
        depth=max(0, min(sizes.depth, context - prompt - decode - 8)),
        window=min(sizes.window, context),
        greedy_tokens=max(1, min(sizes.greedy_tokens, context - 40)),
    )
