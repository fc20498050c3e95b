"""The ceiling: decode and sample in a loop, without engine, service or clients.

    python -m benchmarks.peers.bare_loop MODEL CELLS SLOTS THREADS

Reads a request as JSON from each line of stdin, writes its answers as JSON on a line of stdout:
jobs are computed in waves of `clients`, and a prefix that all prompts share is computed once.
It runs in the environment that the worker gives itself (`worker.llama.library`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.peers.answers import Answer, Job, Work
from worker import log
from worker.engine.request import Request
from worker.engine.sampling import SamplingParams
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.library import native
from worker.llama.weights import LoadOptions

_MIN_SHARED = 32  # tokens; BOS alone is no prefix worth a copy


class Slot(msgspec.Struct):
    """A slot of the cache, and the job in it."""

    slot: int
    tokens: list[int]
    answer: Answer
    sampler: Any
    last: int = 0


class BareLoop:
    """Slots 0 to clients - 1 decode; slot `clients` keeps the shared prefix."""

    def __init__(self, backend: LlamaBackend) -> None:
        self._backend = backend
        self._memory: Any = native.llama_get_memory(backend.context.handle)

    def answer(self, work: Work) -> list[Answer]:
        """All jobs, wave by wave; what is unfinished at the limit is cut off."""
        started = time.monotonic()
        deadline = started + work.limit_s
        tokenize = self._backend.vocab.tokenize
        prompts = [tokenize(j.prompt, add_special=True, parse_special=False) for j in work.jobs]
        shared = _shared_length(prompts)
        if shared:
            self._prefill([(work.clients, prompts[0][:shared], 0)])
        answers: list[Answer] = []
        pairs = list(zip(work.jobs, prompts, strict=True))
        for first in range(0, len(pairs), work.clients):
            wave = pairs[first : first + work.clients]
            answers += self._wave(wave, shared, work.clients, deadline)
        answers[0].sent = started
        self._backend.context.clear()
        return answers

    def _wave(
        self, wave: Sequence[tuple[Job, list[int]]], shared: int, keeper: int, deadline: float
    ) -> list[Answer]:
        """Jobs side by side; slot `keeper` holds the first `shared` tokens of their prompts."""
        backend, sent = self._backend, time.monotonic()
        running: list[Slot] = []
        for slot, (job, prompt) in enumerate(wave):
            params = SamplingParams(temperature=0, ignore_eos=True)
            request = Request(
                id=str(slot), prompt=tuple(prompt), max_tokens=job.max_tokens, sampling=params
            )
            answer = Answer(sent=sent, prompt_tokens=len(prompt), cached_tokens=shared)
            running.append(Slot(slot, prompt, answer, backend.make_sampler(request)))
            backend.drop(slot)
            if shared:
                native.llama_memory_seq_cp(self._memory, keeper, slot, 0, shared)
        runs = [(s.slot, s.tokens[shared:], shared) for s in running]
        for s, row in self._prefill(runs, running):
            self._take(s, row)
        tokens = max(job.max_tokens for job, _ in wave)
        for step in range(tokens - 1):
            if time.monotonic() > deadline:
                break
            backend.batch.clear()
            for s in running:
                backend.batch.add_one(s.last, len(s.tokens) + step, s.slot)
            backend.decode()
            for row, s in enumerate(running):
                self._take(s, row)
        for s in running:
            backend.free_sampler(s.sampler)
            s.answer.ended = s.answer.times[-1]
            s.answer.tokens = len(s.answer.times)
            s.answer.is_whole = s.answer.tokens == tokens
        return [s.answer for s in running]

    def _take(self, s: Slot, row: int) -> None:
        s.last = self._backend.sample(row, s.sampler)
        s.answer.times.append(time.monotonic())

    def _prefill(
        self,
        runs: Sequence[tuple[int, list[int], int]],
        sequences: Sequence[Slot] = (),
    ) -> list[tuple[Slot, int]]:
        """Compute (slot, tokens, start) runs in as few full batches as they fill.

        Returns the sequences whose last row is in the last batch, with that row; those before
        have been sampled already.
        """
        batch, ready = self._backend.batch, list[tuple[Slot, int]]()
        batch.clear()
        for index, (slot, tokens, start) in enumerate(runs):
            for offset, token in enumerate(tokens):
                if batch.size == batch.capacity:
                    self._backend.decode()
                    for s, row in ready:
                        self._take(s, row)
                    ready.clear()
                    batch.clear()
                row = batch.add_one(token, start + offset, slot)
                batch.outputs[row] = offset == len(tokens) - 1
            if sequences:
                ready.append((sequences[index], batch.size - 1))
        self._backend.decode()
        return ready


def _shared_length(prompts: Sequence[list[int]]) -> int:
    """Tokens that all prompts begin with, at least one token less than the shortest."""
    if len(prompts) < 2:
        return 0
    low, high = min(prompts), max(prompts)
    limit = min(map(len, prompts)) - 1
    length = next((i for i in range(limit) if low[i] != high[i]), limit)
    return length if length >= _MIN_SHARED else 0


def main() -> None:
    """Load, say so with an empty line, then answer line by line until stdin ends."""
    log.configure("console")
    cells, slots, threads = map(int, sys.argv[2:])
    options = ContextOptions(
        num_cells=cells, num_slots=slots + 1, threads=threads, threads_batch=threads
    )
    with LlamaBackend(Path(sys.argv[1]), LoadOptions(), options) as backend:
        backend.warm_up()
        loop = BareLoop(backend)
        print(flush=True)
        for line in sys.stdin.buffer:
            answers = loop.answer(msgspec.json.decode(line, type=Work))
            print(msgspec.json.encode(answers).decode(), flush=True)


if __name__ == "__main__":
    main()
