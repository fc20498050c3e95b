"""examples/pool_manager.py, used as its docstring says, and mistreated."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Generator
from http.client import HTTPConnection
from pathlib import Path

import openai
import pytest

from checks.examples import programs
from checks.examples.programs import EXAMPLES, MODEL, Load, Program, Reader
from tests.support.metrics import count_ended
from tests.support.programs.processes import until

SLOW_POOL = Path(__file__).with_name("slow_pool.py")
READY = r"^(worker-\d): pid (\d+) at (http://\S+)$"


class PoolProgram(Program):
    """The manager with its workers.

    url      where clients ask
    workers  name -> (pid, url) of those that said that they are ready
    """

    def __init__(self, *options: str, step_seconds: float | None = None) -> None:
        script = EXAMPLES / "pool_manager.py" if step_seconds is None else SLOW_POOL
        words = (sys.executable, script, "--port", "0", *options)
        super().__init__(*words, step_seconds=step_seconds)
        self.workers: dict[str, tuple[int, str]] = {}
        try:
            self.url = self.wait_for(r"^listening on (\S+)")[1]
        except BaseException:
            self.end()
            raise

    def wait_for_workers(self, count: int) -> None:
        """Until so many more are ready."""
        for _ in range(count):
            name, pid, url = self.wait_for(READY).groups()
            self.workers[name] = (int(pid), url)

    def begin_stream(self, tokens: int) -> tuple[Reader, str]:
        """A stream, and the name of the worker that got it; nobody else may ask meanwhile."""

        def given() -> dict[str, int]:
            """Requests that each worker got: a short one may have ended before we look."""
            return {
                name: programs.count_running(url) + count_ended(url)
                for name, (_, url) in self.workers.items()
            }

        before = given()
        reader = Reader(self.url, tokens=tokens)
        after = given()
        (name,) = (name for name in before if after[name] > before[name])
        return reader, name


@contextlib.contextmanager
def pool(step_seconds: float | None = 0.02) -> Generator[PoolProgram]:
    """A manager with two workers that are ready; all gone afterwards."""
    with PoolProgram("--", "--threads", "1", step_seconds=step_seconds) as program:
        program.wait_for_workers(2)
        yield program


@pytest.fixture(scope="module")
def calm() -> Generator[PoolProgram]:
    """A manager for tests that leave it as they found it."""
    with pool() as program:
        yield program


@pytest.fixture
def client(calm: PoolProgram) -> Generator[openai.OpenAI]:
    with openai.OpenAI(base_url=calm.url + "/v1", api_key="unused", max_retries=0) as client:
        yield client


def test_help() -> None:
    """--help shows a command line to try."""
    with Program(sys.executable, EXAMPLES / "pool_manager.py", "--help") as program:
        assert program.wait() == 0
        program.wait_for("python examples/pool_manager.py --workers 2")


def test_short_enough_to_read() -> None:
    """The example has at most 150 lines: it is documentation, and nobody reads long ones."""
    assert len((EXAMPLES / "pool_manager.py").read_text().splitlines()) <= 150


def test_one_address_for_all(calm: PoolProgram, client: openai.OpenAI) -> None:
    """The manager relays models, completions, streams and errors unchanged."""
    assert [model.id for model in client.models.list()] == [MODEL]
    whole = client.completions.create(model=MODEL, prompt="Once", max_tokens=20, temperature=0)
    parts = client.completions.create(
        model=MODEL, prompt="Once", max_tokens=20, temperature=0, stream=True
    )
    assert "".join(part.choices[0].text for part in parts) == whole.choices[0].text
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt="Once", temperature=101)
    assert caught.value.param == "temperature"


def test_the_least_busy_worker_is_asked(calm: PoolProgram) -> None:
    """Two streams at once run on two workers."""
    first, one = calm.begin_stream(100)
    second, other = calm.begin_stream(100)
    assert one != other
    assert (first.result(), second.result()) == ("length", "length")


@pytest.mark.parametrize("streaming", [True, False])
def test_a_client_that_leaves(calm: PoolProgram, streaming: bool) -> None:
    """A client that leaves ends its request, whether it streamed or waited for the whole."""

    def aborted() -> int:
        return sum(count_ended(url, "aborted") for _, url in calm.workers.values())

    def running() -> int:
        return sum(programs.count_running(url) for _, url in calm.workers.values())

    before = aborted()
    body = {"prompt": "Once", "max_tokens": 1_900, "ignore_eos": True, "stream": streaming}
    address = calm.url.removeprefix("http://")
    with contextlib.closing(HTTPConnection(address)) as connection:
        connection.request("POST", "/v1/completions", json.dumps(body))
        until(lambda: running() == 1)
    until(lambda: aborted() == before + 1)


def test_sigkill_under_load() -> None:
    """Nobody notices but the streams of the dead worker; another one takes its place."""
    with pool(0.01) as manager:
        readers = [manager.begin_stream(400), manager.begin_stream(400)]
        victim = readers[0][1]
        pid, _ = manager.workers[victim]
        with Load(manager.url) as load:
            load.goes_on(3)
            os.kill(pid, signal.SIGKILL)
            for reader, name in readers:
                cut_off = isinstance(reader.result(), Exception)
                assert cut_off is (name == victim), (name, reader.result())
            manager.wait_for(rf"^{victim}: ended with -9$")
            manager.wait_for_workers(1)
            assert manager.workers[victim][0] != pid
            load.goes_on()
            until(lambda: count_ended(manager.workers[victim][1]) > 0)
        assert not load.errors


def test_a_frozen_worker_is_replaced() -> None:
    """Without heartbeats a worker is killed, and its requests go to the other one."""
    with pool(None) as manager:
        pid, _ = manager.workers["worker-1"]
        os.kill(pid, signal.SIGSTOP)
        with Load(manager.url, clients=4) as load:
            manager.wait_for("^worker-1: ended with -9$")
            manager.wait_for_workers(1)
            load.goes_on()
        assert not programs.is_running(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_drain(number: signal.Signals) -> None:
    """Running streams are finished, all workers leave with 0, and so does the manager."""
    with pool() as manager:
        readers = [Reader(manager.url, tokens=50) for _ in range(2)]
        if number is signal.SIGINT:
            os.killpg(manager.process.pid, number)  # as Ctrl-C in a terminal does
        else:
            manager.process.send_signal(number)
        assert [reader.result() for reader in readers] == ["length", "length"]
        assert manager.wait() == 0
        manager.wait_until_silent()
        ends = sorted(line for line in manager.lines if "ended with" in line)
        assert ends == ["worker-1: ended with 0", "worker-2: ended with 0"]
        assert not any(programs.is_running(pid) for pid, _ in manager.workers.values())


def test_sigkill_of_the_manager() -> None:
    """Workers leave when the manager is killed, also in the midst of streams."""
    with pool() as manager:
        readers = [Reader(manager.url) for _ in range(2)]
        manager.process.kill()
        workers = [pid for pid, _ in manager.workers.values()]
        until(lambda: not any(map(programs.is_running, workers)))
        manager.wait_until_silent()
        assert all(isinstance(reader.result(), Exception) for reader in readers)


def test_workers_that_cannot_start() -> None:
    """A wrong option is not tried for ever: the manager says the exit code and gives up."""
    with PoolProgram("--", "--no-such-option") as manager:
        assert manager.wait() == 1
        manager.wait_until_silent()
        ends = [line for line in manager.lines if "ended with" in line]
        assert len(ends) == 2  # the second one may have been told to leave before it could fail
        assert ends[0].endswith(": ended with 2")
        assert any(line.startswith("error: USAGE: ") for line in manager.lines)
