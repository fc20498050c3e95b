"""The peers: how each is started on equal terms, and how to tell that it is ready."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from benchmarks.peers.endpoints import (
    HOST,
    BareProcess,
    Endpoint,
    HttpPeer,
    wait_until_ready,
    warm_up,
)
from benchmarks.peers.processes import PeerError, free_port, started, wait_until_settled

START_TIMEOUT_S = 180.0
_log_numbers = itertools.count(1)


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Equal for all peers. `cells` is the KV cache of all `slots` together.

    worker_options  more of the worker's options with their values
    baseline      another checkout of the worker with its own .venv, or None
    peers_python  a Python that has requirements.txt
    llama_server  the native binary, or None
    llama_server_flags  what the peer `flagged` is started with besides
    logs          folder for what the peers write
    """

    model: Path
    threads: int
    cells: int
    slots: int
    worker_options: Mapping[str, str] = {}
    baseline: Path | None
    peers_python: Path
    llama_server: Path | None
    llama_server_flags: tuple[str, ...] = ()
    logs: Path


class Peer(msgspec.Struct, frozen=True):
    """One kind of peer.

    start     context manager: a ready, warm endpoint, gone afterwards
    version   what it is; raises PeerError where it is not installed
    is_http   False for the bare loop, which nothing can be sent to while it runs
    is_serial it answers one request at a time
    is_for_drafts   it is measured only in cases that are about guesses
    """

    name: str
    start: Callable[[Setup], AbstractContextManager[Endpoint]]
    version: Callable[[Setup], str]
    is_http: bool = True
    is_serial: bool = False
    is_for_drafts: bool = False


def _worker(setup: Setup, port: int) -> list[str]:
    return worker_command(sys.executable, setup, port)


def _without_drafts(setup: Setup, port: int) -> list[str]:
    others = {n: v for n, v in setup.worker_options.items() if not n.startswith("--draft")}
    undrafted = msgspec.structs.replace(setup, worker_options=others | {"--draft": "none"})
    return worker_command(sys.executable, undrafted, port)


def _before(setup: Setup, port: int) -> list[str]:
    return worker_command(str(_baseline_python(setup)), setup, port, setup.baseline)


def worker_command(python: str, setup: Setup, port: int, folder: Path | None = None) -> list[str]:
    """How a worker is started; `folder` is the checkout it is of (None: the current folder).

    Options that it does not know are left out.
    """
    known = worker_options(python, folder) if setup.worker_options else frozenset[str]()
    more = [(name, value) for name, value in setup.worker_options.items() if name in known]
    return [
        *(python, "-m", "worker", "serve", "--model", str(setup.model.resolve())),
        *("--host", HOST, "--port", str(port)),
        *("-c", str(setup.cells), "-np", str(setup.slots), "-t", str(setup.threads)),
        *itertools.chain.from_iterable(more),
    ]


@functools.cache
def worker_options(python: str, folder: Path | None) -> frozenset[str]:
    """The options that `worker serve --help` names, in a checkout (None: the current folder)."""
    command = [python, "-m", "worker", "serve", "--help"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=folder
    )
    return frozenset(re.findall(r"--[a-z][a-z-]*", done.stdout))


def _baseline_python(setup: Setup) -> Path:
    if setup.baseline is None:
        raise PeerError("is not there; name another checkout with --baseline")
    return setup.baseline.resolve() / ".venv" / "bin" / "python"


def _llama_server(setup: Setup, port: int) -> list[str]:
    return [
        *(str(setup.llama_server), "--model", str(setup.model)),
        *("--host", HOST, "--port", str(port), "--no-webui"),
        *("-c", str(setup.cells), "-np", str(setup.slots), "-t", str(setup.threads)),
    ]


def _flagged(setup: Setup, port: int) -> list[str]:
    return [*_llama_server(setup, port), *setup.llama_server_flags]


def _xllamacpp(setup: Setup, port: int) -> list[str]:
    script = Path(__file__).with_name("xllamacpp_server.py")
    numbers = (port, setup.cells, setup.slots, setup.threads)
    return [str(setup.peers_python), str(script), str(setup.model), *map(str, numbers)]


def _llama_cpp_python(setup: Setup, port: int) -> list[str]:
    # It serves one request at a time: a slot's share of the cells is all it can use. Kept logits
    # would only cost it memory, and a new request must not interrupt the one that runs.
    return [
        *(str(setup.peers_python), "-m", "llama_cpp.server", "--model", str(setup.model)),
        *("--host", HOST, "--port", str(port), "--n_ctx", str(setup.cells // setup.slots)),
        *("--n_threads", str(setup.threads), "--n_threads_batch", str(setup.threads)),
        *("--logits_all", "false", "--interrupt_requests", "false"),
    ]


def _over_http(
    command: Callable[[Setup, int], list[str]],
    ready: str,
    folder: Callable[[Setup], Path | None] = lambda _: None,
) -> Callable[[Setup], AbstractContextManager[Endpoint]]:
    """How to start a server: its command, the path that says it is ready, the folder to start in
    (None: ours)."""

    @contextlib.contextmanager
    def start(setup: Setup) -> Generator[Endpoint]:
        port, log = free_port(), setup.logs / f"{next(_log_numbers):03}.log"
        with started(command(setup, port), log, folder=folder(setup)) as process:
            peer = HttpPeer(port, setup.model.name)
            wait_until_ready(peer, ready, process, log, START_TIMEOUT_S)
            warm_up(peer)
            wait_until_settled(log)
            yield peer

    return start


@contextlib.contextmanager
def _start_bare(setup: Setup) -> Generator[Endpoint]:
    numbers = (setup.cells, setup.slots, setup.threads)
    module = [sys.executable, "-m", "benchmarks.peers.bare_loop", str(setup.model)]
    log = setup.logs / f"{next(_log_numbers):03}.log"
    with started([*module, *map(str, numbers)], log, answers=True) as process:
        bare = BareProcess(process, log)
        bare.read_line()
        warm_up(bare)
        yield bare


def _python_version(package: str) -> Callable[[Setup], str]:
    def version(setup: Setup) -> str:
        code = f"import importlib.metadata as m; print(m.version('{package}'))"
        return _output([str(setup.peers_python), "-c", code])

    return version


_VERSIONS = "import worker, llama_cpp; print(worker.__version__, 'on', llama_cpp.__version__)"


def _worker_version(_: Setup) -> str:
    return _output([sys.executable, "-c", _VERSIONS])


def _before_version(setup: Setup) -> str:
    return _output([str(_baseline_python(setup)), "-c", _VERSIONS], folder=setup.baseline)


def _native_version(setup: Setup) -> str:
    if setup.llama_server is None:
        raise PeerError("is not there; set LLAMA_SERVER to a llama-server binary")
    return _output([str(setup.llama_server), "--version"])


def _output(command: list[str], folder: Path | None = None) -> str:
    """The first line that says a version. Raises PeerError where the command fails."""
    if not os.access(command[0], os.X_OK):
        raise PeerError(f"is not there: no {command[0]}")
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=folder
    )
    lines = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode or not lines:
        raise PeerError(f"is not there: {lines[-1] if lines else command[0]}")
    said = (line for line in lines if line.startswith("version"))
    return next(said, lines[0]).removeprefix("version: ")


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("worker", _over_http(_worker, "/health"), _worker_version),
        Peer(
            "undrafted", _over_http(_without_drafts, "/health"), _worker_version, is_for_drafts=True
        ),
        Peer("before", _over_http(_before, "/health", lambda s: s.baseline), _before_version),
        Peer("llama-server", _over_http(_llama_server, "/health"), _native_version),
        Peer("flagged", _over_http(_flagged, "/health"), _native_version, is_for_drafts=True),
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
