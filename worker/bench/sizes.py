"""How much is measured, so that it fits the model's context and the time."""

from __future__ import annotations

from collections.abc import Callable
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


WHOLE = 1_000_000  # windows: more than a text has
# Effort -> sizes, and the seconds of a whole run that --time changes. What takes longer is cut.
EFFORTS: dict[Effort, tuple[Sizes, float]] = {
    "quick": (
        Sizes(window=512, windows=16, questions=32, greedy_prompts=4, greedy_tokens=24,
              prompt=128, depth=0, decode=24, repetitions=3, requests=2, loads=1),
        75.0,
    ),
    "normal": (
        Sizes(window=512, windows=WHOLE, questions=96, greedy_prompts=8, greedy_tokens=48,
              prompt=512, depth=1024, decode=32, repetitions=5, requests=3, loads=2),
        300.0,
    ),
    "thorough": (
        Sizes(window=512, windows=WHOLE, questions=400, greedy_prompts=8, greedy_tokens=128,
              prompt=512, depth=4096, decode=128, repetitions=10, requests=6, loads=5),
        3600.0,
    ),
}  # fmt: skip
_LEAST = Sizes(window=128, windows=4, questions=16, greedy_prompts=2, greedy_tokens=16,
               prompt=64, depth=128, decode=16, repetitions=3, requests=2, loads=1)  # fmt: skip
_QUESTION_TOKENS = 35

LEAST_S, _MOST_DECODE = 0.03, 64
_LEAST_CONTEXT = 64


class BenchWork(msgspec.Struct, frozen=True, kw_only=True):
    """What the seconds of a run are for.

    context    tokens of the model's longest sequence
    streams    side by side
    levels     that are measured
    scorings   of the text, as many levels' as all of them take together; 0: quality is not measured
    questions  how many there are, if they are the user's own
    """

    context: int
    streams: int
    levels: int
    scorings: float
    questions: int | None = None


def sizes_for(effort: Effort, cost: TokenCost, work: BenchWork, seconds: float) -> Sizes:
    """The effort's sizes, or smaller ones if those would take more than these seconds.

    Half of the time is for speed, and quality gets what that leaves: first the answers, then as
    much of the text as there is time for. Raises UsageError if the context has too few tokens.
    """
    if work.context < _LEAST_CONTEXT:
        raise UsageError(
            f"The model takes {work.context} tokens at most, too few to measure its speed on.",
            hint=f"Choose one of {_LEAST_CONTEXT} tokens or more.",
        )
    wanted = EFFORTS[effort][0]
    # A repetition of a few milliseconds would measure the clock and the neighbours.
    decode = max(wanted.decode, min(_MOST_DECODE, int(LEAST_S / cost.write_s)))
    wanted = msgspec.structs.replace(
        wanted,
        decode=decode,
        questions=wanted.questions if work.questions is None else work.questions,
    )
    share = 0.5 if work.scorings else 1.0
    sizes = _cut(wanted, work, seconds * share / work.levels,
                 lambda sizes: speed_s(sizes, cost, work.streams))  # fmt: skip
    if not work.scorings:
        return sizes
    left = (seconds - work.levels * speed_s(sizes, cost, work.streams)) / work.scorings
    answers = _cut(wanted, work, left / 4, lambda sizes: _answers_s(sizes, cost))
    windows = int((left - _answers_s(answers, cost)) / _text_s(1, sizes.window, cost))
    if min(windows, wanted.windows) * sizes.window >= cost.text_tokens:
        windows = WHOLE  # windows of a short text are shorter, so there are more of them
    return msgspec.structs.replace(
        sizes,
        windows=max(_LEAST.windows, min(windows, wanted.windows)),
        questions=answers.questions,
        greedy_prompts=answers.greedy_prompts,
        greedy_tokens=answers.greedy_tokens,
    )


def _cut(
    wanted: Sizes, work: BenchWork, seconds: float, expected_s: Callable[[Sizes], float]
) -> Sizes:
    """Sizes whose expected seconds are within these, or the smallest ones."""
    sizes, share = _within(wanted, work.context), 1.0
    for _ in range(20):
        expected = expected_s(sizes)
        if expected <= seconds:
            break
        share *= max(0.3, min(0.95, seconds / expected))
        sizes = _within(_scale(wanted, share), work.context)
    return sizes


def speed_s(sizes: Sizes, cost: TokenCost, streams: int) -> float:
    """Seconds that a level's tests of speed will compute."""
    rounds = sizes.repetitions + 1
    deep = 1 if sizes.depth else 0
    read = rounds * sizes.prompt * (1 + deep) + streams * sizes.depth
    asked = 3 * (sizes.requests + 1)  # in the bare loop, and in both passes over HTTP
    together = streams if streams > 1 else 0  # one stream is measured once
    read += asked * sizes.prompt * (1 + together)
    # A step of several streams takes longer than a step of one, by less than their number.
    many = 1 + 0.5 * (streams - 1) if together else 0
    write = rounds * sizes.decode * (1 + deep) * (1 + many)
    write += asked * sizes.decode * (1 + many)
    return read * cost.read_s + write * cost.write_s


def scoring_s(sizes: Sizes, cost: TokenCost) -> float:
    """Seconds in which a level is scored."""
    return _text_s(sizes.windows, sizes.window, cost) + _answers_s(sizes, cost)


def _text_s(windows: int, window: int, cost: TokenCost) -> float:
    tokens = min(windows * window, max(cost.text_tokens, window))
    return tokens * cost.read_s + tokens / 2 * cost.score_s


def _answers_s(sizes: Sizes, cost: TokenCost) -> float:
    read = sizes.questions * _QUESTION_TOKENS * cost.read_s
    return read + sizes.greedy_tokens * (1 + 0.5 * (sizes.greedy_prompts - 1)) * cost.write_s


def _scale(sizes: Sizes, share: float) -> Sizes:
    cut = {
        name: max(min(getattr(_LEAST, name), wanted), int(wanted * share))
        for name in ("questions", "greedy_tokens", "prompt", "depth", "decode")
        for wanted in [getattr(sizes, name)]
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
