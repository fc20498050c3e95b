"""What attention costs at depth: with flash attention, without, and from a quantised cache."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from worker.bench.figures import figure
from worker.bench.measure.bare_loop import BareLoop, rate
from worker.bench.sections import Rate
from worker.bench.sizes import Sizes
from worker.engine.backend import Backend
from worker.settings import Settings

DEPTHS = (0, 1024, 4096)
_PROMPT, _DECODE, _REPETITIONS = 64, 8, 3
_QUANTISED = "q8_0"


def depths_within(context: int, sizes: Sizes) -> list[int]:
    """The depths that leave a sequence of `context` tokens room for what is read and written."""
    prompt, decode = _lengths(sizes)
    return [depth for depth in DEPTHS if not depth or depth + prompt + decode < context]


def ways_of(settings: Settings, depth: int, sizes: Sizes) -> list[Settings]:
    """The settings to compare, for one sequence of that depth; those that were asked for last.

    f16 with flash attention, f16 without, q8_0 with; and other cache types, if asked for.
    """
    room = {"parallel": 1, "ctx_size": depth + sum(_lengths(sizes)) + 8}
    ways = [("on", "f16", "f16"), ("off", "f16", "f16"), ("on", _QUANTISED, _QUANTISED)]
    asked = (settings.cache_type_k, settings.cache_type_v)
    if asked not in (way[1:] for way in ways):
        ways.append(("off" if settings.flash_attn == "off" else "on", *asked))
    return [
        msgspec.structs.replace(
            settings, flash_attn=flash, cache_type_k=keys, cache_type_v=values, **room
        )
        for flash, keys, values in ways
    ]


def measure_depths(
    backend: Backend, depths: list[int], sizes: Sizes, budget_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Rate, ...]:  # fmt: skip
    """Reading a piece of a prompt and writing one stream after so many tokens each.

    Depths follow each other as long as the seconds last; the first one is measured in any case.
    One repetition of each test is not counted.
    """
    loop, started = BareLoop(backend, clock), clock()
    prompt, decode = _lengths(sizes)
    rates: list[Rate] = []
    for number, depth in enumerate(depths):
        # The next depth takes longer than all before it.
        if number and (clock() - started) * 1.5 > budget_s:
            break
        loop.deepen(depth)
        read = [rate(loop.prefill(prompt, depth)) for _ in range(1 + _REPETITIONS)][1:]
        write = [rate(loop.decode(1, decode, depth)) for _ in range(1 + _REPETITIONS)][1:]
        for kind, tokens, values in (("prefill", prompt, read), ("decode", decode, write)):
            rates.append(
                Rate(kind=kind, streams=1, depth=depth, tokens=tokens, per_s=figure(values))
            )
    return tuple(rates)


def _lengths(sizes: Sizes) -> tuple[int, int]:
    return min(_PROMPT, sizes.prompt), min(_DECODE, sizes.decode)
