"""The bare loop: how fast the model reads and writes without engine, service or clients.

As in llama-bench, prompts and decoding are tested apart, and each repetition begins with the same
number of tokens in the cache. Unlike there, choosing the token counts too (greedy, by the native
sampler), because no stream goes without it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import numpy as np

from worker.bench.figures import Figure, Ids, figure, latency
from worker.bench.sections import LoopSpeed, Rate, Requests, TokenCost
from worker.bench.sizes import LEAST_S, SEED, Sizes
from worker.engine.backend import Backend
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams

# slot, tokens to read into it, position of the first of them
TokenRun = tuple[int, Ids, int]
GREEDY = SamplingParams(temperature=0, ignore_eos=True)
_PROBE_TOKENS, _PROBE_STEPS = 64, 8
_SCORE_S = 10e-9  # to compare one logit of a row
_MOST_RUNS = 200  # that make one repetition


@contextlib.contextmanager
def greedy_samplers(backend: Backend, count: int) -> Generator[list[Any]]:
    """Samplers that take the likeliest token, freed at the end."""
    samplers = [
        backend.make_sampler(
            Request(
                id=str(i),
                prompt=Prompt((0,)),
                params=GenerationParams(max_tokens=1, sampling=GREEDY),
            )
        )
        for i in range(count)
    ]
    try:
        yield samplers
    finally:
        for sampler in samplers:
            backend.free_sampler(sampler)


def read_runs(backend: Backend, runs: Iterable[TokenRun]) -> Generator[tuple[int, int]]:
    """Compute runs of tokens in as few full batches as they fill.

    Yields (slot, batch row of its last token) of a run as soon as its last token is computed; the
    row's logits are there until the next pair is asked for.
    """
    batch, ready = backend.batch, list[tuple[int, int]]()
    batch.clear()
    for slot, tokens, start in runs:
        at = 0
        while at < len(tokens):
            if batch.size == batch.capacity:
                backend.decode()
                yield from ready
                ready.clear()
                batch.clear()
            part = tokens[at : at + batch.capacity - batch.size]
            batch.add(part, start + at, slot)
            at += len(part)
        batch.outputs[batch.size - 1] = 1
        ready.append((slot, batch.size - 1))
    backend.decode()
    yield from ready


def write_steps(
    backend: Backend,
    samplers: Sequence[Any],
    last: Sequence[int],
    starts: Sequence[int],
    steps: int,
) -> Generator[list[int]]:
    """Write `steps` tokens in slots 0, 1, ...; yields each step's tokens as soon as they are there.

    last    the token that each slot continues with
    starts  its position
    """
    tokens = list(last)
    for step in range(steps):
        backend.batch.clear()
        for slot, (token, start) in enumerate(zip(tokens, starts, strict=True)):
            backend.batch.add_one(token, start + step, slot)
        backend.decode()
        tokens = [backend.sample(row, sampler) for row, sampler in enumerate(samplers)]
        yield tokens


class BareLoop:
    """Tests in slots 0 to streams - 1 of one backend, with random tokens as prompts."""

    def __init__(self, backend: Backend, clock: Callable[[], float] = time.perf_counter) -> None:
        self._backend, self._clock = backend, clock
        self._held = [0] * backend.shape.num_slots  # tokens in each slot
        self._seed = SEED

    def _prompt(self, count: int) -> Ids:
        """Tokens that were not read before, so that no prefix is shared."""
        self._seed += 1
        return random_tokens(self._seed, count, self._backend.vocab_size)

    def _read(self, slot: int, tokens: Ids, start: int) -> int:
        """Read one run; the batch row of its last token."""
        ((_, row),) = read_runs(self._backend, [(slot, tokens, start)])
        self._held[slot] = start + len(tokens)
        return row

    def _rewind(self, streams: int, depth: int) -> None:
        """Leave exactly `depth` tokens in each stream's slot and none in the others.

        A cell that another slot holds costs time too: every stream looks at all cells.
        """
        backend = self._backend
        for slot in range(streams, len(self._held)):
            if self._held[slot]:
                backend.drop(slot)
                self._held[slot] = 0
        for slot in range(streams):
            if self._held[slot] >= depth > 0 and backend.shape.cuts_tails:
                backend.drop(slot, depth)
            else:
                backend.drop(slot)
                if depth:
                    self._read(slot, self._prompt(depth), 0)
            self._held[slot] = depth

    def prefill(self, tokens: int, depth: int) -> tuple[int, float]:
        """Tokens of a prompt, and the seconds to read it, its first token chosen."""
        self._rewind(1, depth)
        prompt = self._prompt(tokens)
        with greedy_samplers(self._backend, 1) as samplers:
            started = self._clock()
            row = self._read(0, prompt, depth)
            self._backend.sample(row, samplers[0])
            return tokens, self._clock() - started

    def decode(self, streams: int, tokens: int, depth: int) -> tuple[int, float]:
        """Tokens of all streams, and the seconds to write them, step by step."""
        self._rewind(streams, depth)
        with greedy_samplers(self._backend, streams) as samplers:
            started = self._clock()
            self._write(samplers, [0] * streams, depth, tokens)
            return streams * tokens, self._clock() - started

    def _write(self, samplers: list[Any], last: list[int], depth: int, steps: int) -> list[float]:
        """The moment at which each step's tokens are there."""
        starts = [depth] * len(last)
        for slot in range(len(last)):
            self._held[slot] += steps
        written = write_steps(self._backend, samplers, last, starts, steps)
        return [self._clock() for _ in written]

    def request(self, streams: int, prompt: int, tokens: int) -> tuple[list[float], list[float]]:
        """TTFT of each stream and the gaps between steps, of requests that arrive together."""
        backend = self._backend
        self._rewind(streams, 0)
        prompts = [self._prompt(prompt) for _ in range(streams)]
        with greedy_samplers(backend, streams) as samplers:
            started = self._clock()
            last: list[int] = []
            first: list[float] = []
            for slot, sampler in enumerate(samplers):
                row = self._read(slot, prompts[slot], 0)
                last.append(backend.sample(row, sampler))
                first.append(self._clock())
            moments = [first[-1], *self._write(samplers, last, prompt, tokens - 1)]
        gaps = [float(gap) for gap in np.diff(moments)]
        return [moment - started for moment in first], gaps


def rate(run: tuple[int, float]) -> float:
    """Tokens a second of a run: its tokens and its seconds."""
    tokens, seconds = run
    return tokens / seconds


def random_tokens(seed: int, count: int, vocab_size: int) -> Ids:
    """Token ids for tests of speed, where their meaning does not matter."""
    return np.random.default_rng(seed).integers(0, vocab_size, count, np.int32)


def token_cost(backend: Backend, text_tokens: int) -> TokenCost:
    """Seconds a token, read and written, each after a round that is not counted."""
    loop = BareLoop(backend)
    runs = [(loop.prefill(_PROBE_TOKENS, 0), loop.decode(1, _PROBE_STEPS, 0)) for _ in range(2)]
    (read, read_s), (written, write_s) = runs[1]
    return TokenCost(
        read_s=read_s / read,
        write_s=write_s / written,
        score_s=backend.vocab_size * _SCORE_S,
        text_tokens=text_tokens,
    )


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


def _long_enough(once: Callable[[], tuple[int, float]]) -> float:
    """Tokens a second over as many runs as take LEAST_S: one of a tiny model would measure the
    clock and the neighbours."""
    tokens, seconds = once()
    for _ in range(_MOST_RUNS):
        if seconds >= LEAST_S:
            break
        more, took = once()
        tokens, seconds = tokens + more, seconds + took
    return rate((tokens, seconds))


def measure_speed(
    backend: Backend,
    sizes: Sizes,
    streams: int,
    tick: Callable[[], None],
    clock: Callable[[], float] = time.perf_counter,
) -> LoopSpeed:
    """All tests of the bare loop; `tick` is called after each. One repetition is not counted."""
    loop = BareLoop(backend, clock)

    def repeat(once: Callable[[], tuple[int, float]]) -> Figure:
        once()
        values = [_long_enough(once) for _ in range(sizes.repetitions)]
        tick()
        return figure(values)

    rates: list[Rate] = []
    counts = sorted({1, streams})
    for depth in sorted({0, sizes.depth}):
        per_s = repeat(lambda depth=depth: loop.prefill(sizes.prompt, depth))
        rates.append(Rate(kind="prefill", streams=1, depth=depth, tokens=sizes.prompt, per_s=per_s))
        for count in counts:
            per_s = repeat(lambda count=count, depth=depth: loop.decode(count, sizes.decode, depth))
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
    return LoopSpeed(rates=tuple(rates), requests=tuple(requests))
