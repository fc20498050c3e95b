"""The bare loop: how fast the model reads and writes without engine, service or clients.

As llama-bench, a prompt and a decode test are apart, and each repetition begins with the same
number of tokens in the cache. Unlike there, choosing the token is counted (greedy, by the native
sampler), because no stream goes without.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from worker.bench.corpus import random_tokens
from worker.bench.plan import SEED, Probe, Sizes
from worker.bench.statistics import Figure, Latency, figure, latency
from worker.engine.backend import Backend
from worker.engine.request import Request
from worker.engine.sampling import SamplingParams

Clock = Callable[[], float]
_GREEDY = SamplingParams(temperature=0, ignore_eos=True)
PROBE_TOKENS, PROBE_STEPS = 64, 8


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens a second of all streams together, `tokens` in each, after `depth` tokens of context.

    kind: `prefill` reads a prompt, `decode` writes token by token
    """

    kind: str
    streams: int
    depth: int
    tokens: int
    per_s: Figure


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """Whole requests, `prompt` tokens read and `tokens` written, by `streams` side by side.

    ttft     from the request to its first token, seconds
    itl      between tokens of a stream, seconds
    per_s    tokens a second of all streams: the sum of each one's, from its first to its last
    passes   its mean in each process that was measured
    """

    streams: int
    prompt: int
    tokens: int
    ttft: Latency | None
    itl: Latency | None
    per_s: Figure
    passes: tuple[float, ...]


def requests_of(
    streams: int, sizes: Sizes, ttft: list[float], itl: list[float], speeds: list[float]
) -> Requests:
    """The figures of one process."""
    per_s = figure(speeds or [0.0])
    return Requests(
        streams=streams,
        prompt=sizes.prompt,
        tokens=sizes.decode,
        ttft=latency(ttft),
        itl=latency(itl),
        per_s=per_s,
        passes=(per_s.mean,),
    )


def merged(a: Requests, b: Requests) -> Requests:
    """Both passes in one."""
    return msgspec.structs.replace(
        a,
        ttft=latency(_values(a.ttft) + _values(b.ttft)),
        itl=latency(_values(a.itl) + _values(b.itl)),
        per_s=figure(a.per_s.values + b.per_s.values),
        passes=a.passes + b.passes,
    )


def _values(found: Latency | None) -> tuple[float, ...]:
    return found.values if found else ()


class BareSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """All of the bare loop."""

    rates: tuple[Rate, ...]
    requests: tuple[Requests, ...]


class BareLoop:
    """Decodes in slots 0 to streams - 1 of one backend."""

    def __init__(self, backend: Backend, clock: Clock = time.perf_counter) -> None:
        self._backend, self._clock = backend, clock
        self._held = [0] * backend.num_slots  # tokens in each slot
        self._seed = SEED

    def _prompt(self, count: int) -> np.ndarray:
        """Tokens that were not read before, so that no prefix is shared."""
        self._seed += 1
        return random_tokens(self._seed, count, self._backend.vocab_size)

    def fill(self, slot: int, tokens: np.ndarray, start: int) -> int:
        """Read tokens into a slot in full batches; the row of the last one."""
        batch = self._backend.batch
        for at in range(0, len(tokens), batch.capacity):
            part = tokens[at : at + batch.capacity]
            batch.clear()
            batch.add(part, start + at, slot)
            if at + len(part) == len(tokens):
                batch.outputs[len(part) - 1] = 1
            self._backend.decode()
        self._held[slot] = start + len(tokens)
        return batch.size - 1

    def _rewind(self, streams: int, depth: int) -> None:
        """Leave exactly `depth` tokens in each slot, and nothing in the others: every stream
        looks at all cells of the cache, its own or not."""
        backend = self._backend
        for slot in range(streams, len(self._held)):
            if self._held[slot]:
                backend.drop(slot)
                self._held[slot] = 0
        for slot in range(streams):
            if self._held[slot] >= depth > 0 and backend.cuts_tails:
                backend.drop(slot, depth)
            else:
                backend.drop(slot)
                if depth:
                    self.fill(slot, self._prompt(depth), 0)
            self._held[slot] = depth

    def prefill(self, tokens: int, depth: int) -> float:
        """Tokens a second of reading a prompt, its first token chosen."""
        backend = self._backend
        self._rewind(1, depth)
        prompt = self._prompt(tokens)
        with _Samplers(backend, 1) as samplers:
            started = self._clock()
            row = self.fill(0, prompt, depth)
            backend.sample(row, samplers[0])
            return tokens / (self._clock() - started)

    def decode(self, streams: int, tokens: int, depth: int) -> float:
        """Tokens a second of all streams, written step by step."""
        self._rewind(streams, depth)
        with _Samplers(self._backend, streams) as samplers:
            started = self._clock()
            self._steps(samplers, [0] * streams, depth, tokens)
            return streams * tokens / (self._clock() - started)

    def _steps(self, samplers: list[Any], last: list[int], depth: int, steps: int) -> list[float]:
        """The moment at which each step's tokens are there."""
        backend, moments = self._backend, list[float]()
        for step in range(steps):
            backend.batch.clear()
            for slot, token in enumerate(last):
                backend.batch.add_one(token, depth + step, slot)
                self._held[slot] += 1
            backend.decode()
            last = [backend.sample(slot, sampler) for slot, sampler in enumerate(samplers)]
            moments.append(self._clock())
        return moments

    def request(self, streams: int, prompt: int, tokens: int) -> tuple[list[float], list[float]]:
        """TTFT of each stream and the gaps between steps, of requests that arrive together."""
        backend = self._backend
        self._rewind(streams, 0)
        prompts = [self._prompt(prompt) for _ in range(streams)]
        with _Samplers(backend, streams) as samplers:
            started = self._clock()
            last: list[int] = []
            first: list[float] = []
            for slot, sampler in enumerate(samplers):
                row = self.fill(slot, prompts[slot], 0)
                last.append(backend.sample(row, sampler))
                first.append(self._clock())
            moments = [first[-1], *self._steps(samplers, last, prompt, tokens - 1)]
        gaps = [float(gap) for gap in np.diff(moments)]
        return [moment - started for moment in first], gaps


class _Samplers:
    """Greedy samplers, freed at the end."""

    def __init__(self, backend: Backend, count: int) -> None:
        self._backend = backend
        self._samplers = [
            backend.make_sampler(Request(id=str(i), prompt=(0,), max_tokens=1, sampling=_GREEDY))
            for i in range(count)
        ]

    def __enter__(self) -> list[Any]:
        return self._samplers

    def __exit__(self, *_: object) -> None:
        for sampler in self._samplers:
            self._backend.free_sampler(sampler)


def probe(backend: Backend) -> Probe:
    """Seconds a token, read and written, each after a round that is not counted."""
    loop = BareLoop(backend)
    speeds = [(loop.prefill(PROBE_TOKENS, 0), loop.decode(1, PROBE_STEPS, 0)) for _ in range(2)]
    return Probe(read_s=1 / speeds[1][0], write_s=1 / speeds[1][1])


def measure_speed(
    backend: Backend, sizes: Sizes, streams: int, tick: Callable[[], None],
    clock: Clock = time.perf_counter,
) -> BareSpeed:  # fmt: skip
    """All tests of the bare loop, one repetition of each not counted."""
    loop = BareLoop(backend, clock)

    def repeated(once: Callable[[], float]) -> Figure:
        once()
        values = [once() for _ in range(sizes.repetitions)]
        tick()
        return figure(values)

    rates: list[Rate] = []
    counts = sorted({1, streams})
    for depth in sorted({0, sizes.depth}):
        per_s = repeated(lambda depth=depth: loop.prefill(sizes.prompt, depth))
        rates.append(Rate(kind="prefill", streams=1, depth=depth, tokens=sizes.prompt, per_s=per_s))
        for count in counts:
            per_s = repeated(
                lambda count=count, depth=depth: loop.decode(count, sizes.decode, depth)
            )
            rates.append(
                Rate(kind="decode", streams=count, depth=depth, tokens=sizes.decode, per_s=per_s)
            )
    requests: list[Requests] = []
    for count in counts:
        first: list[float] = []
        gaps: list[float] = []
        speeds: list[float] = []
        for round_ in range(sizes.requests + 1):
            ttft, itl = loop.request(count, sizes.prompt, sizes.decode)
            if round_:
                first += ttft
                gaps += itl
                if itl:
                    speeds.append(count * len(itl) / sum(itl))
        tick()
        requests.append(requests_of(count, sizes, first, gaps, speeds))
    return BareSpeed(rates=tuple(rates), requests=tuple(requests))
