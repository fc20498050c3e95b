"""examples/supervisor.conf with the real Supervisor."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from checks.examples import programs
from checks.examples.programs import EXAMPLES, Reader
from checks.examples.supervision import (
    Manager,
    check_a_killed_worker_is_replaced,
    check_workers_leave_with,
)
from tests.support import http


class Supervisor(Manager):
    """supervisord with the example's configuration, but on free ports and in a folder of its own.

    urls  of the two workers
    """

    def __init__(self, folder: Path, env: dict[str, str] | None = None) -> None:
        ports = programs.free_ports(2)
        text = (EXAMPLES / "supervisor.conf").read_text()
        self._file = folder / "supervisor.conf"
        self._file.write_text(
            text.replace("/tmp/gguf-workers", str(folder / "s")).replace("8081", str(ports[0]))
        )
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        self.names = [f"worker-{port}" for port in ports]
        self._control = programs.command("supervisorctl")
        super().__init__(
            *(programs.command("supervisord"), "--nodaemon", "--configuration", self._file),
            env=env,
            step_seconds=0.02,
        )

    def control(self, *words: str) -> str:
        """What supervisorctl prints."""
        command = [self._control, "--configuration", str(self._file), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout

    def pid_of(self, name: str) -> int:
        """Of the process that runs under that name now; 0 when there is none."""
        return int(self.control("pid", f"worker:{name}"))


@pytest.fixture
def supervisor(tmp_path: Path) -> Generator[Supervisor]:
    """Supervisor with two workers that are ready; all gone afterwards."""
    with Supervisor(tmp_path) as program:
        program.wait_until_ready()
        yield program


def test_a_killed_worker_is_replaced(supervisor: Supervisor) -> None:
    """A killed worker serves again on its port; clients of the other one notice nothing."""
    check_a_killed_worker_is_replaced(supervisor)


def test_asked_to_leave(supervisor: Supervisor) -> None:
    """A worker that left with 0 because it was told to is not started again."""
    supervisor.wait_for(f"success: {supervisor.names[1]} entered RUNNING state")
    assert http.post(supervisor.urls[0] + "/shutdown").status_code == 202
    supervisor.wait_for(rf"exited: {supervisor.names[0]} \(exit status 0; expected\)")
    assert "EXITED" in supervisor.control("status", f"worker:{supervisor.names[0]}")
    assert programs.is_serving(supervisor.urls[1])


def test_drain(supervisor: Supervisor) -> None:
    """At SIGTERM running streams are finished, and all workers leave with 0."""
    readers = [Reader(url, tokens=50) for url in supervisor.urls]
    supervisor.process.terminate()
    assert [reader.result() for reader in readers] == ["length", "length"]
    for _ in supervisor.urls:
        supervisor.wait_for(r"stopped: worker-\d+ \(exit status 0\)")
    assert supervisor.wait() == 0
    supervisor.wait_until_silent()


def test_sigkill_of_the_supervisor(supervisor: Supervisor) -> None:
    """The workers leave when the supervisor is killed."""
    check_workers_leave_with(supervisor)


def test_wrong_options(tmp_path: Path) -> None:
    """Supervisor gives up a worker that ends with 2."""
    with Supervisor(tmp_path, env={"LLAMA_ARG_CTX_SIZE": "many"}) as program:
        program.wait_for(r"exited: worker-\d+ \(exit status 2; not expected\)")
        for _ in program.urls:
            program.wait_for("entered FATAL state, too many start retries")
        program.process.terminate()
        assert program.wait() == 0
