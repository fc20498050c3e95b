"""The peers: how each is started on equal terms, and how to tell that it is ready."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from benchmarks.peers.answers import Answer, Endpoint, Job, Work
from benchmarks.peers.client import Client
from benchmarks.peers.processes import PeerError, free_port, last_lines, started

START_TIMEOUT_S = 180.0
_WARM_UP_S = 60.0
_log_numbers = itertools.count(1)


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Equal for all peers. `cells` is the KV cache of all `slots` together.

    peers_python  a Python that has requirements.txt
    llama_server  the native binary, or None
    logs          folder for what the peers write
    """

    model: Path
    threads: int
    cells: int
    slots: int
    peers_python: Path
    llama_server: Path | None
    logs: Path


class Peer(msgspec.Struct, frozen=True):
    """One kind of peer.

    start     context manager: a ready, warm endpoint, gone afterwards
    version   what it is; raises PeerError where it is not installed
    is_http   False for the bare loop, which nothing can be sent to while it runs
    is_serial it answers one request at a time
    """

    name: str
    start: Callable[[Setup], AbstractContextManager[Endpoint]]
    version: Callable[[Setup], str]
    is_http: bool = True
    is_serial: bool = False


def _worker(setup: Setup, port: int) -> list[str]:
    return [
        *(sys.executable, "-m", "worker", "serve", "--model", str(setup.model)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("-c", str(setup.cells), "-np", str(setup.slots), "-t", str(setup.threads)),
    ]


def _llama_server(setup: Setup, port: int) -> list[str]:
    return [
        *(str(setup.llama_server), "--model", str(setup.model)),
        *("--host", "127.0.0.1", "--port", str(port), "--no-webui"),
        *("-c", str(setup.cells), "-np", str(setup.slots), "-t", str(setup.threads)),
    ]


def _xllamacpp(setup: Setup, port: int) -> list[str]:
    script = Path(__file__).with_name("xllamacpp_server.py")
    numbers = (port, setup.cells, setup.slots, setup.threads)
    return [str(setup.peers_python), str(script), str(setup.model), *map(str, numbers)]


def _llama_cpp_python(setup: Setup, port: int) -> list[str]:
    # It serves one request at a time: a slot's share of the cells is all it can use. Kept logits
    # would only cost it memory, and a new request must not interrupt the one that runs.
    return [
        *(str(setup.peers_python), "-m", "llama_cpp.server", "--model", str(setup.model)),
        *("--host", "127.0.0.1", "--port", str(port), "--n_ctx", str(setup.cells // setup.slots)),
        *("--n_threads", str(setup.threads), "--n_threads_batch", str(setup.threads)),
        *("--logits_all", "false", "--interrupt_requests", "false"),
    ]


def _over_http(
    command: Callable[[Setup, int], list[str]], ready: str
) -> Callable[[Setup], AbstractContextManager[Endpoint]]:
    @contextlib.contextmanager
    def start(setup: Setup) -> Generator[Endpoint]:
        port, log = free_port(), setup.logs / f"{next(_log_numbers):03}.log"
        with started(command(setup, port), log) as process:
            client = Client(f"http://127.0.0.1:{port}", setup.model.name)
            deadline = time.monotonic() + START_TIMEOUT_S
            try:
                while client.get(ready) != 200:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise PeerError(f"did not start:\n{last_lines(log)}")
                    time.sleep(0.05)
                _warm_up(client)
                yield client
            finally:
                client.close()

    return start


class BareProcess:
    """`bare_loop` in a process of its own, spoken to in lines."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def answer_all(self, work: Work) -> list[Answer]:
        """Compute all jobs; `clients` is the size of a wave."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(work) + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise PeerError(f"has ended:\n{last_lines(self._log)}") from None
        return msgspec.json.decode(self.read_line(), type=list[Answer])

    def read_line(self) -> bytes:
        """The next line of its stdout."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"has ended:\n{last_lines(self._log)}")
        return line


@contextlib.contextmanager
def _start_bare(setup: Setup) -> Generator[Endpoint]:
    numbers = (setup.cells, setup.slots, setup.threads)
    module = [sys.executable, "-m", "benchmarks.peers.bare_loop", str(setup.model)]
    log = setup.logs / f"{next(_log_numbers):03}.log"
    with started([*module, *map(str, numbers)], log, answers=True) as process:
        bare = BareProcess(process, log)
        bare.read_line()
        _warm_up(bare)
        yield bare


def _warm_up(endpoint: Endpoint) -> None:
    answer = endpoint.answer_all(Work([Job("warm up", 8)], 1, _WARM_UP_S))[0]
    if answer.error:
        raise PeerError(f"failed its first request: {answer.error}")


def _python_version(package: str) -> Callable[[Setup], str]:
    def version(setup: Setup) -> str:
        code = f"import importlib.metadata as m; print(m.version('{package}'))"
        return _output([str(setup.peers_python), "-c", code])

    return version


def _worker_version(_: Setup) -> str:
    code = "import worker, llama_cpp; print(worker.__version__, 'on', llama_cpp.__version__)"
    return _output([sys.executable, "-c", code])


def _native_version(setup: Setup) -> str:
    if setup.llama_server is None:
        raise PeerError("is not there; set LLAMA_SERVER to a llama-server binary")
    return _output([str(setup.llama_server), "--version"])


def _output(command: list[str]) -> str:
    """The first line that says a version. Raises PeerError where the command fails."""
    if not os.access(command[0], os.X_OK):
        raise PeerError(f"is not there: no {command[0]}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode or not lines:
        raise PeerError(f"is not there: {lines[-1] if lines else command[0]}")
    said = (line for line in lines if line.startswith("version"))
    return next(said, lines[0]).removeprefix("version: ")


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("worker", _over_http(_worker, "/health"), _worker_version),
        Peer("llama-server", _over_http(_llama_server, "/health"), _native_version),
        Peer("xllamacpp", _over_http(_xllamacpp, "/health"), _python_version("xllamacpp")),
        Peer(
            "llama-cpp-python",
            _over_http(_llama_cpp_python, "/v1/models"),
            _python_version("llama_cpp_python"),
            is_serial=True,
        ),
        Peer("bare", _start_bare, _worker_version, is_http=False),
    )
}
