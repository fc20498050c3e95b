"""What a record makes of its stream, without an engine that runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.fakes import FakeBackend
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.stream import Lane, Stream
from worker.errors import CancelledError, DecodeError, RequestError, WorkerError
from worker.requests.journal import MAX_POINTS, Journal, Speeds
from worker.requests.record import RequestRecord
from worker.requests.work import RequestWork


class Bench:
    """An engine that steps when told, and one request of some sequences over it."""

    def __init__(self, prompts: list[list[int]], *, copies: int = 1, max_tokens: int = 8) -> None:
        self.now = 100.0
        self.engine = Engine(FakeBackend(), lambda: self.now, max_running=2)
        self.journal = Journal("model")
        self.record = self.journal.open("id", None, "POST", "/v1/completions")
        requests = [
            Request(
                id=f"{place}-{copy}",
                prompt=Prompt(tuple(prompt)),
                params=GenerationParams(max_tokens=max_tokens),
            )
            for place, prompt in enumerate(prompts)
            for copy in range(copies)
        ]
        self.stream = Stream([request.id for request in requests], self.engine.abort)
        lane = SimpleNamespace(
            max_length=self.engine.backend.max_length, status_of=self.engine.status_of
        )
        self.work = RequestWork(self.stream, requests, copies, cast("Lane", lane))
        self.work.began = self.now
        self.record.follow(self.work)
        for request in requests:
            self.engine.add(request)

    def step(self) -> None:
        self.now += 1.0
        for delta in self.engine.step():
            self.stream.put(delta)

    def finish(self) -> None:
        while not self.engine.is_idle:
            self.step()


def live(record: RequestRecord, now: float = 100.0) -> Any:
    return record.live(now, "model")


def test_copies() -> None:
    """Three prompts twice each, of which two sequences run at once."""
    bench = Bench([[1, 2, 3], [4, 5, 6, 7], [8]], copies=2)
    before = live(bench.record)
    assert (before.state, before.prompt_tokens, before.max_tokens) == ("waiting", 8, 48)
    assert (before.read_tokens, before.generated_tokens) == (0, 0)
    bench.step()
    now = live(bench.record)
    assert now.sequences == 6
    assert now.read_tokens <= 3
    while bench.journal.live:
        assert live(bench.record).read_tokens <= 8
        bench.step()
    sums = bench.work.sums(bench.now)
    assert sums.read_tokens == 8
    assert sums.generated_tokens <= 48
    assert sums.num_running == 0
    assert live(bench.record) is None


def test_it_ends_with_its_answer() -> None:
    """Its work is done; the answer is still on its way to a slow reader."""
    bench = Bench([[1, 2, 3]])
    bench.finish()
    assert bench.journal.live == []
    assert not bench.journal.recent
    bench.record.on_answer(200)
    (ended,) = bench.journal.recent
    assert ended.outcome in ("stop", "length")
    assert bench.journal.num_ended == 1
    assert ended.wait_s == 1.0
    assert ended.generated_tokens == bench.work.sums(0).generated_tokens > 0


def test_it_outlives_its_answer() -> None:
    """A job: the answer names it, and it goes on."""
    bench = Bench([[1, 2, 3]])
    bench.record.on_answer(200)
    assert bench.journal.live == [bench.record]
    bench.finish()
    assert bench.journal.live == []
    assert len(bench.journal.recent) == 1


@pytest.mark.parametrize(
    ("error", "outcome", "num_errors"),
    [
        (CancelledError("Enough."), "cancelled", 0),
        (RequestError("The grammar leaves no token."), "refused", 0),
        (DecodeError("It broke."), "error", 1),
    ],
)
def test_errors(error: WorkerError, outcome: str, num_errors: int) -> None:
    """The tokens of all sequences count, whatever ended them."""
    bench = Bench([[1, 2, 3], [4, 5]], max_tokens=50)
    bench.step()
    bench.step()
    count = live(bench.record).generated_tokens
    bench.stream.fail(error)
    bench.record.on_answer(200)
    (ended,) = bench.journal.recent
    assert (ended.outcome, ended.code) == (outcome, error.code)
    assert ended.generated_tokens == count > 0
    assert bench.journal.num_errors == num_errors
    assert bench.engine.is_idle


def test_left() -> None:
    """Nobody reads any more: no error, and what was generated counts."""
    bench = Bench([[1, 2, 3]], max_tokens=50)
    bench.step()
    bench.stream.close()
    bench.stream.close()
    bench.record.on_answer(None)
    (ended,) = bench.journal.recent
    assert (ended.outcome, ended.status, ended.code) == ("left", None, None)
    assert ended.generated_tokens == 1
    assert bench.journal.num_ended == 1


def test_speeds() -> None:
    """Tokens a second between two points, of those that run too; the oldest points are dropped."""
    bench = Bench([[1, 2, 3, 4]], max_tokens=50)
    speeds = Speeds()
    speeds.note(100.0, bench.engine.snapshot)
    bench.step()
    bench.step()
    speeds.note(102.0, bench.engine.snapshot)
    assert speeds.points[-1][1:] == (2.0, 1.0)
    bench.stream.close()
    speeds.note(104.0, bench.engine.snapshot)
    assert speeds.points[-1][1:] == (0.0, 0.0)
    for place in range(2 * MAX_POINTS):
        speeds.note(110.0 + place, bench.engine.snapshot)
    assert len(speeds.points) == MAX_POINTS
