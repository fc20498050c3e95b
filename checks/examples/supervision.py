"""What every process supervisor must show: a dead worker replaced, no orphan left."""

from __future__ import annotations

import os
import signal
from abc import abstractmethod

from checks.examples import programs
from checks.examples.programs import Load, Program, Reader
from tests.support.programs.processes import until


class Manager(Program):
    """Somebody else's supervisor over two workers.

    urls, names  of the two workers
    """

    urls: list[str]
    names: list[str]

    @abstractmethod
    def pid_of(self, name: str) -> int:
        """Of the process that runs under that name now; 0 when there is none."""

    def wait_until_ready(self) -> None:
        """Until both workers serve."""
        until(lambda: all(map(programs.is_serving, self.urls)))


def check_a_killed_worker_is_replaced(manager: Manager) -> None:
    """A killed worker serves again on its port; clients of the other one notice nothing."""
    victim, other = manager.urls
    pid = manager.pid_of(manager.names[0])
    with Load(other) as load:
        cut_off, finished = Reader(victim), Reader(other, tokens=100)
        os.kill(pid, signal.SIGKILL)
        assert isinstance(cut_off.result(), Exception)
        until(lambda: programs.is_serving(victim))
        assert manager.pid_of(manager.names[0]) not in (0, pid)
        assert Reader(victim, tokens=20).result() == "length"
        assert finished.result() == "length"
        load.goes_on()
    assert not load.errors


def check_workers_leave_with(manager: Manager) -> None:
    """A supervisor that is killed leaves no worker behind."""
    pids = [manager.pid_of(name) for name in manager.names]
    readers = [Reader(url) for url in manager.urls]
    manager.process.kill()
    until(lambda: not any(map(programs.is_running, pids)))
    assert all(isinstance(reader.result(), Exception) for reader in readers)
