"""An engine over a fake backend: what it is asked, and stepping it with its books checked."""

from __future__ import annotations

from tests.support.fakes import FakeBackend
from worker.engine.engine import Engine
from worker.engine.request import Request
from worker.engine.sequence import Delta


def request(name: str, prompt: list[int], max_tokens: int = 8, **more: object) -> Request:
    """A request for a fake backend."""
    return Request(id=name, prompt=tuple(prompt), max_tokens=max_tokens, **more)  # type: ignore[arg-type]


def engine_over(backend: FakeBackend) -> Engine:
    """An engine whose clock is the fake's."""
    return Engine(backend, lambda: backend.now)


def run(engine: Engine, steps: int = 2_000) -> dict[str, list[Delta]]:
    """Step until idle, checking the books after each step."""
    deltas: dict[str, list[Delta]] = {}
    for _ in range(steps):
        if engine.is_idle:
            return deltas
        for delta in engine.step():
            deltas.setdefault(delta.id, []).append(delta)
        engine.scheduler.check_integrity()
    raise AssertionError(f"not idle after {steps} steps")


def tokens_of(deltas: list[Delta]) -> list[int]:
    """What was sampled."""
    return [delta.token for delta in deltas if delta.token is not None]
