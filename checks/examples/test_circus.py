"""examples/circus.ini with the real Circus."""

from __future__ import annotations

import json
import re
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
from tests.support.programs.processes import until


class Circus(Manager):
    """circusd with the example's configuration, but on free ports.

    urls  of the two workers
    """

    def __init__(self, folder: Path) -> None:
        ports = programs.free_ports(4)
        theirs = ["8081", "8082", "5555", "5556"]
        ours = dict(zip(theirs, map(str, ports), strict=True))
        text = (EXAMPLES / "circus.ini").read_text()
        file = folder / "circus.ini"
        file.write_text(re.sub("|".join(ours), lambda found: ours[found[0]], text))
        self.urls = [f"http://127.0.0.1:{port}" for port in ports[:2]]
        self.names = [f"worker-{port}" for port in ports[:2]]
        self._control = [programs.command("circusctl"), "--endpoint", f"tcp://127.0.0.1:{ports[2]}"]
        super().__init__(programs.command("circusd"), file, step_seconds=0.02)

    def control(self, *words: str) -> str:
        """What circusctl prints."""
        command = [*self._control, "--json", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout

    def status_of(self, name: str) -> str:
        """active, stopping or stopped."""
        return json.loads(self.control("status", name))["status"]

    def pid_of(self, name: str) -> int:
        """Of the process that runs under that name now; 0 when there is none."""
        pids = json.loads(self.control("list", name)).get("pids", [])
        return pids[0] if pids else 0


@pytest.fixture
def circus(tmp_path: Path) -> Generator[Circus]:
    """Circus with two workers that are ready; all gone afterwards."""
    with Circus(tmp_path) as program:
        program.wait_until_ready()
        yield program


def test_a_killed_worker_is_replaced(circus: Circus) -> None:
    """A killed worker serves again on its port; clients of the other one notice nothing."""
    check_a_killed_worker_is_replaced(circus)


def test_stopping_one(circus: Circus) -> None:
    """`circusctl stop` drains a worker and does not start it again; the other one goes on."""
    pid = circus.pid_of(circus.names[0])
    reader = Reader(circus.urls[0], tokens=50)
    circus.control("stop", circus.names[0])
    assert reader.result() == "length"
    until(lambda: not programs.is_running(pid))
    assert circus.status_of(circus.names[0]) == "stopped"
    assert programs.is_serving(circus.urls[1])


def test_drain(circus: Circus) -> None:
    """At SIGTERM running streams are finished, and nothing is left."""
    readers = [Reader(url, tokens=50) for url in circus.urls]
    circus.process.terminate()
    assert [reader.result() for reader in readers] == ["length", "length"]
    assert circus.wait() == 0
    circus.wait_until_silent()
    assert not any("SIGKILL" in line for line in circus.lines)


def test_sigkill_of_circus(circus: Circus) -> None:
    """The workers leave when the supervisor is killed."""
    check_workers_leave_with(circus)
