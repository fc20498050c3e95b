"""Memory, disks, clocks, stops and files that go away around a worker."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from checks.faults.block import Block
from checks.faults.scenario import Clients, streamed
from checks.faults.seams import EXHAUSTIVE
from checks.faults.worker import faulty, left_cleanly
from tests.support import http
from tests.support.programs.managers import OK, Manager
from tests.support.programs.processes import (
    Server,
    WorkerProcess,
    became_ready,
    serving,
    until,
)

_OPTIONS = ("--ctx-size", "512", "--parallel", "2", "-t", "1")
_WORKER = [sys.executable, "-m", "worker", "serve", "--port", "0", "--log-format", "json"]
# Twenty levels of address space. Below 160 MB numpy's library for matrices ends the process itself.
_LEVELS = range(160, 1160, 50)
_STOPPED_S = 10.0
slow = pytest.mark.skipif(not EXHAUSTIVE, reason="with EXHAUSTIVE=1 only")


def limited(limit: str, model: Path) -> WorkerProcess:
    """A worker under a limit of the shell's `ulimit`."""
    command = ["sh", "-c", f'ulimit {limit} && exec "$@"', "sh", *_WORKER]
    return WorkerProcess(
        "--model", str(model), *_OPTIONS, command=command, env={"OPENBLAS_NUM_THREADS": "1"}
    )


@pytest.mark.parametrize("megabytes", _LEVELS if EXHAUSTIVE else (560,))
def test_little_address_space(megabytes: int, tiny: Path) -> None:
    """Ready and well, or gone with a code of the contract and one reason."""
    process = limited(f"-v {megabytes * 1024}", tiny)
    try:
        if became_ready(process):
            Clients(Server.over(process)).is_well()
            process.process.terminate()
            assert process.wait() == 0
        else:
            left_cleanly(process)
    finally:
        process.end()


@slow
def test_files_that_may_not_grow(tiny: Path, tmp_path: Path) -> None:
    """With `ulimit -f` no state can be written; the requests are answered, and SIGTERM is 0."""
    command = ["sh", "-c", 'ulimit -f 8 && exec "$@"', "sh", *_WORKER]
    options = ("--cache-dir", str(tmp_path / "kept-here"), "--cache-ram", "8")
    # Python would keep bytecode that was cut, and no later process could import it.
    environment = {"PYTHONDONTWRITEBYTECODE": "1"}
    process = WorkerProcess(
        "--model", str(tiny), *_OPTIONS, *options, command=command, env=environment
    )
    try:
        assert became_ready(process)
        clients = Clients(Server.over(process))
        for number in range(4):
            body = {"prompt": f"{number} " * 200, "max_tokens": 2}
            assert clients.server.post(body).status_code == 200
        clients.is_well()
        process.process.terminate()
        assert process.wait() == 0
    finally:
        process.end()


def free_port() -> int:
    """A port of loopback on which nobody listens now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("fmt", ["json", "console"] if EXHAUSTIVE else ["json"])
def test_a_log_on_a_full_disk(fmt: str, tiny: Path) -> None:
    """What cannot be logged is lost, and nothing else."""
    port = free_port()
    words = ["serve", "--port", str(port), "--log-format", fmt, "--model", str(tiny), *_OPTIONS]
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(
            [sys.executable, "-m", "worker", *words], stderr=full, stdout=full
        )
    try:
        url = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            assert process.poll() is None
            with contextlib.suppress(httpx.TransportError):
                return http.get(url + "/health").status_code == 200
            return False

        until(answers)
        body = {"prompt": "the rain", "max_tokens": 3}
        answer = http.post(url + "/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        process.terminate()
        # Standard output could not be written to: that it is empty does not matter.
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("hours", [24, -24] if EXHAUSTIVE else [-24])
def test_a_clock_that_jumps(hours: int, tiny: Path, tmp_path: Path) -> None:
    """The time of day is shown, and nothing waits by it: all is answered as before."""
    block = Block(tmp_path / "block")
    with faulty(block, "--model", tiny, *_OPTIONS, "--cache-dir", tmp_path / "kept-here") as server:
        clients = Clients(server)
        block.arm("clock", 1, hours, forever=True)
        clients.is_well()
        assert block.disarm()
        clients.is_well()
        server.process.terminate()
        assert server.wait() == 0


@contextlib.contextmanager
def reading(server: Server) -> Generator[list[str]]:
    """A stream that a thread reads to its end; what became of it, once the block is left."""
    became: list[str] = []
    thread = threading.Thread(target=lambda: became.append(streamed(server)))
    thread.start()
    yield became
    thread.join()


@slow
def test_a_process_that_is_stopped(tiny: Path) -> None:
    """After ten seconds of SIGSTOP the stream goes on, and heartbeats say that all is well."""
    manager = Manager(lambda _, peer: peer.sendall(OK))
    options = ("--heartbeat-url", manager.url, "--heartbeat-interval", "0.5")
    try:
        with serving("--model", tiny, *_OPTIONS, *options, step_seconds=0.2) as server:
            with reading(server) as became:
                server.wait_until(slots_processing=1)
                server.process.send_signal(signal.SIGSTOP)
                time.sleep(_STOPPED_S)
                server.process.send_signal(signal.SIGCONT)
            assert became[0].startswith("text: ")
            seen = len(manager.bodies)
            bodies: list[dict[str, Any]] = manager.wait_for(seen + 2)
            assert {body["health_status"] for body in bodies} == {"healthy"}
            server.process.terminate()
            assert server.wait() == 0
    finally:
        manager.close()


def test_a_model_file_that_is_removed(tiny: Path, tmp_path: Path) -> None:
    """A loaded model needs its name no more."""
    model = Path(shutil.copy(tiny, tmp_path / "model.gguf"))
    with serving("--model", model, *_OPTIONS) as server:
        clients = Clients(server)
        model.unlink()
        clients.is_well()
        assert http.get(server.url + "/v1/models").status_code == 200


@slow
def test_a_model_file_that_is_cut(tiny: Path, tmp_path: Path) -> None:
    """With --no-mmap a loaded model needs its file no more."""
    model = Path(shutil.copy(tiny, tmp_path / "model.gguf"))
    with serving("--model", model, *_OPTIONS, "--no-mmap") as server:
        clients = Clients(server)
        os.truncate(model, 4096)
        clients.is_well()


@slow
def test_few_descriptors(tiny: Path) -> None:
    """With 30 files a worker starts and serves."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    process = limited(f"-n {min(30, hard)}", tiny)
    try:
        assert became_ready(process)
        Clients(Server.over(process)).is_well()
        process.process.terminate()
        assert process.wait() == 0
    finally:
        process.end()


def test_a_machine_without_proc(tiny: Path) -> None:
    """Where /proc is empty, as in some containers, the worker serves and leaves as elsewhere."""
    hidden = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
    script = 'mount -t tmpfs none /proc && exec "$@"'
    try:
        subprocess.run([*hidden, script, "sh", "true"], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not hide /proc from a process")
    process = WorkerProcess(
        "--model", str(tiny), *_OPTIONS, "--mmap", command=[*hidden, script, "sh", *_WORKER]
    )
    try:
        assert became_ready(process), process.lines
        server = Server.over(process)
        Clients(server).is_well()
        assert httpx.get(server.url + "/metrics").status_code == 200
        process.process.terminate()
        assert process.wait() == 0
    finally:
        process.end()
