"""A model from zero to two replicas and back, by `worker fleet serve` on a cluster of its own."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import pytest

from tests.support import http
from tests.support.programs import Program, until

PORT = 8768
URL = f"http://127.0.0.1:{PORT}"
PATIENCE_S = 120.0
# One slot, so that two requests at a time are one too many for a replica.
MODEL = """
options = ["-c", "1024", "-np", "1", "-t", "1", "--cache-ram", "0"]
replicas = { min = 0, max = 2, idle = 3 }
"""


def ask(tokens: int, *, stream: bool = False) -> Any:
    """A completion of so many tokens."""
    body = {"prompt": "Once", "max_tokens": tokens, "ignore_eos": True, "stream": stream}
    return http.post(URL + "/v1/completions", json=body, timeout=PATIENCE_S)


def seen() -> dict[str, Any]:
    """What /fleet says of the model."""
    return http.get(URL + "/fleet").json()["models"]["a"]


class Asking:
    """Threads that ask one request after the other until told to stop."""

    def __init__(self, count: int) -> None:
        self.statuses: list[int] = []
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._done.is_set():
            self.statuses.append(ask(300).status_code)

    def end(self) -> None:
        """Wait for the last answers."""
        self._done.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[Program]:
    """A fleet of one model that sleeps."""
    file = tmp_path_factory.mktemp("fleet") / "fleet.toml"
    file.write_text(f"[fleet]\nport = {PORT}\n[models.a]{MODEL}")
    process = Program("-m", "worker", "fleet", "serve", str(file))
    try:
        until(lambda: any(" ready " in line or "error:" in line for line in process.lines), 120)
        assert process.process.poll() is None, process.lines
        yield process
    finally:
        process.end()


def test_from_zero_to_two_and_back(fleet: Program) -> None:
    """A stream wakes the model and is told so; load brings a second replica; the end of it takes
    both away, and no request is lost on the way."""
    assert seen() == {"affinity": "prefix", "replicas": [], "wanted": 0}
    assert http.get(URL + "/health").json()["status"] == "ok"
    stream = ask(5, stream=True)
    assert stream.status_code == 200
    events = stream.text.split("\n\n")
    first = next(number for number, event in enumerate(events) if event.startswith("data: "))
    assert first > 0
    assert set(events[:first]) == {":"}
    assert events[-2] == "data: [DONE]"
    assert len(seen()["replicas"]) == 1

    many = Asking(4)
    until(lambda: len(seen()["replicas"]) == 2, PATIENCE_S)
    many.end()
    few = Asking(1)
    until(lambda: seen()["wanted"] == 1, PATIENCE_S)
    until(lambda: len(seen()["replicas"]) == 1, PATIENCE_S)
    few.end()
    assert set(many.statuses + few.statuses) == {200}

    until(lambda: seen()["wanted"] == 0 and not seen()["replicas"], PATIENCE_S)
    assert ask(5).json()["usage"]["completion_tokens"] == 5
    assert fleet.process.poll() is None
