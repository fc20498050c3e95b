"""Two threads choose side by side: both work, nothing gets mixed up, the texts are the same."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.models.ggufs import write_llama
from worker.engine.engine import Engine
from worker.engine.output import TokenLogprob
from worker.engine.request import Request
from worker.engine.sampling import SamplingParams
from worker.grammar.constraint import Constraint
from worker.llama.backend import LlamaBackend
from worker.llama.context_options import ContextOptions
from worker.llama.process.threads import ThreadLesson
from worker.llama.sampling import pair as pair_module
from worker.llama.sampling.pair import SamplingPair
from worker.llama.sampling.workspace import Workspace
from worker.llama.weights import LoadOptions

VOCAB = 1201
LONG_S = 60.0


@pytest.fixture
def pair() -> Generator[SamplingPair]:
    """A pair that begins with two threads."""
    pair = SamplingPair(150_000, 2)
    yield pair
    pair.close()


def test_two_at_a_time(pair: SamplingPair) -> None:
    """Jobs that wait for each other are done, and their results stand in their order."""
    both = threading.Barrier(2)

    def job(number: int) -> tuple[int, int]:
        both.wait(LONG_S)
        return number, threading.get_ident()

    jobs: list[Callable[[], Any]] = [lambda n=n: job(n) for n in range(6)]
    made = pair.run(jobs)
    assert [number for number, _ in made] == list(range(6))
    assert {thread for _, thread in made} > {threading.get_ident()}


def test_a_job_that_fails(pair: SamplingPair) -> None:
    """Its error comes out when the other thread has ended too, and the next jobs are done."""
    running = threading.Semaphore(0)

    def fails() -> None:
        raise ZeroDivisionError

    for _ in range(20):
        with pytest.raises(ZeroDivisionError):
            pair.run([running.release, fails, running.release, fails])
    assert pair.run([lambda: 1, lambda: 2, lambda: 3]) == [1, 2, 3]


def test_where_it_may_pay() -> None:
    """From half a million logits on, and never for a process that is to have one CPU."""
    assert SamplingPair(150_000, 2).rows == 4
    assert SamplingPair(32_000, 8).rows == 17
    assert SamplingPair(4_000_000, 2).rows == 2
    assert SamplingPair(150_000, 1).rows == 0


def test_memory_of_its_own() -> None:
    """What one thread leaves in the workspace is not what another one finds."""
    workspace = Workspace(100)
    workspace.copied(np.ones(100, np.float32))
    workspace.mask.words[:] = 7
    found: list[tuple[Any, ...]] = []

    def other() -> None:
        row = workspace.copied(np.zeros(100, np.float32))
        found.append((row.sum(), workspace.mask.address, workspace.chain))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    (total, address, chain) = found[0]
    assert total == 0
    assert workspace.copied(np.ones(100, np.float32)).sum() == 100
    assert address != workspace.mask.address
    assert chain is not workspace.chain


SCHEMA = '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}'
# Each way in which a token is chosen.
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "all": {"seed": 1},
    "top-p": {"seed": 2, "top_p": 0.8, "temperature": 0.7},
    "top-k": {"seed": 3, "top_k": 20},
    "typical": {"seed": 4, "typical_p": 0.9},
    "mirostat": {"seed": 5, "mirostat": 2},
    "penalties": {"seed": 6, "repeat_penalty": 1.3, "dry_multiplier": 0.8},
    "biased": {"seed": 7, "logit_bias": ((5, 3.0), (9, -100.0)), "min_tokens": 5},
    "schema": {"seed": 8, "constraint": Constraint(kind="json_schema", text=SCHEMA)},
    "regex": {"temperature": 0, "constraint": Constraint(kind="regex", text="[a-z ]{4,30}")},
    "impossible": {"seed": 9, "constraint": Constraint(kind="regex", text="\u2603+")},
}


def test_texts_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ways at once, with ln p and without, choose what they choose one after the other."""
    path = write_llama(tmp_path / "wide.gguf", vocab_size=VOCAB)
    found = [_texts(path, monkeypatch, threads) for threads in (1, 2)]
    assert found[0] == found[1]
    assert sum(len(tokens) for tokens, _ in found[0].values()) > 10 * len(WAYS)


def _learn_nothing(lesson: ThreadLesson, rows: int, seconds: float) -> None:
    """As many threads as the test says."""


Text = tuple[list[tuple[int | None, TokenLogprob | None]], str | None]


def _texts(path: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> dict[str, Text]:
    """What each request gets where so many threads choose."""
    monkeypatch.setattr(pair_module, "_WORTH", 2 * VOCAB)
    monkeypatch.setattr(ThreadLesson, "observe", _learn_nothing)
    seen: set[int] = set()
    options = ContextOptions(num_cells=8192, num_slots=16, threads=2, threads_batch=2)
    with LlamaBackend.open(path, LoadOptions(n_gpu_layers=0), options) as backend:
        assert backend.rows_apart == 2
        side_by_side, meeting = backend.side_by_side, threading.Barrier(threads)

        def watched(jobs: list[Callable[[], Any]]) -> list[Any]:
            """As it was; the first jobs of all wait until each thread has one."""

            def first(job: Callable[[], Any]) -> Any:
                meeting.wait(LONG_S)
                seen.add(threading.get_ident())
                return job()

            if seen:
                return side_by_side(jobs)
            return side_by_side([*(partial(first, job) for job in jobs[:threads]), *jobs[threads:]])

        monkeypatch.setattr(backend, "side_by_side", watched)
        monkeypatch.setattr(backend._pair._lesson, "threads", threads)  # pyright: ignore[reportPrivateUsage]
        clock = itertools.count()
        engine = Engine(backend, lambda: next(clock) * 1e-4)
        for number, (name, params) in enumerate(WAYS.items()):
            sampling = SamplingParams(**params)
            prompt = tuple(range(5, 12 + number))
            logprobs = 3 if number % 2 else None
            engine.add(Request(id=name, prompt=prompt, max_tokens=24, sampling=sampling,
                               logprobs=logprobs))  # fmt: skip
        texts: dict[str, Text] = {}
        while not engine.is_idle:
            for delta in engine.step():
                tokens, _ = texts.get(delta.id, ([], None))
                if delta.token is not None:
                    tokens.append((delta.token, delta.logprob))
                texts[delta.id] = tokens, str(delta.error) if delta.error else delta.finish_reason
    assert len(seen) == threads
    return texts
