"""The ceiling: decode and sample in a loop, without engine, service or clients.

    python -m benchmarks.peers.bare_loop MODEL CELLS SLOTS THREADS

Reads work as JSON from each line of stdin, writes its answers as JSON on a line of stdout.
Requests are computed in waves of `clients`, and a prefix that all prompts share is computed once.
Each stream has its own cells, unless they share a prefix or one needs more than its part.
It runs in the environment that the worker gives itself (`worker.llama.library`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.peers.answers import Work
from worker import log
from worker.bench.measure.bare_loop import greedy_samplers, read_runs, write_steps
from worker.bench.measure.client import StreamedAnswer
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions

_MIN_SHARED = 32  # tokens; BOS alone is no prefix worth a copy


def answer(backend: LlamaBackend, work: Work) -> list[StreamedAnswer]:
    """All requests, wave by wave; what is unfinished at the limit is cut off.

    Slots 0 to clients - 1 decode; slot `clients` keeps the shared prefix.
    """
    begun = time.monotonic()
    prompts = [
        backend.vocab.tokenize(request.prompt, add_special=True, parse_special=False)
        if isinstance(request.prompt, str)
        else request.prompt
        for request in work.requests
    ]
    tokenising = time.monotonic() - begun
    shared, keeper = _shared_length(prompts), work.clients
    longest = max(map(len, prompts)) + max(request.max_tokens for request in work.requests)
    backend.arrange(unified=shared > 0 or longest > backend.shape.stream_cells, slots=())
    started = time.monotonic() - tokenising  # peers do not change their layout, but tokenise
    deadline = started + work.limit_s
    if shared:
        list(read_runs(backend, [(keeper, np.array(prompts[0][:shared], np.int32), 0)]))
    answers: list[StreamedAnswer] = []
    for first in range(0, len(prompts), work.clients):
        wave = prompts[first : first + work.clients]
        for slot in range(len(wave)):
            backend.drop(slot)
            if shared:
                backend.share(keeper, slot, shared)
        tokens = max(r.max_tokens for r in work.requests[first : first + work.clients])
        answers += _wave(backend, wave, shared, tokens, deadline)
    answers[0].sent = started
    backend.context.clear()
    return answers


def _wave(
    backend: LlamaBackend, prompts: Sequence[list[int]], shared: int, tokens: int, deadline: float
) -> list[StreamedAnswer]:
    """Requests side by side, whose slots hold the first `shared` tokens of their prompts."""
    sent = time.monotonic()
    answers = [
        StreamedAnswer(sent=sent, prompt_tokens=len(prompt), cached_tokens=shared)
        for prompt in prompts
    ]
    runs = [
        (slot, np.array(prompt[shared:], np.int32), shared) for slot, prompt in enumerate(prompts)
    ]
    last = [0] * len(prompts)
    with greedy_samplers(backend, len(prompts)) as samplers:
        for slot, row in read_runs(backend, runs):
            last[slot] = backend.sample(row, samplers[slot])
            answers[slot].times.append(time.monotonic())
        for _ in write_steps(backend, samplers, last, [len(p) for p in prompts], tokens - 1):
            now = time.monotonic()
            for found in answers:
                found.times.append(now)
            if now > deadline:
                break
    for found in answers:
        found.ended, found.tokens = found.times[-1], len(found.times)
        found.is_whole = found.tokens == tokens
    return answers


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
    with LlamaBackend.open(Path(sys.argv[1]), LoadOptions(), options) as backend:
        backend.warm_up()
        print(flush=True)
        for line in sys.stdin.buffer:
            answers = answer(backend, msgspec.json.decode(line, type=Work))
            print(msgspec.json.encode(answers).decode(), flush=True)


if __name__ == "__main__":
    main()
