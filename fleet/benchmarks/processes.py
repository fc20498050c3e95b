"""Processes that this one has begun, whoever of them began them: others may run a fleet too."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
GATEWAY = "ray::ServeReplica:fleet:gateway"
REPLICA = "ray::ServeReplica:fleet:model-"
CONTROLLER = "ray::ServeController"


def parent_of(pid: int) -> int:
    """The process that began this one. Raises OSError where it is gone."""
    return int(_fields(pid)[1])


def below(top: int | None = None) -> Iterator[tuple[int, str]]:
    """(pid, command line) of all that descend from that process, or from this one."""
    top = top or os.getpid()
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = parent_of(int(folder.name))
    for pid in parents:
        above = pid
        while above in parents and above != top:
            above = parents[above]
        if above == top and pid != above:
            with contextlib.suppress(OSError):
                yield pid, Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def named(title: str) -> list[int]:
    """Those whose command line begins so."""
    return [pid for pid, line in below() if line.startswith(title)]


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, its threads together. Raises OSError."""
    fields = _fields(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_bytes(pid: int) -> int:
    """Memory that this process has to itself, and its share of what it has with others."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def free_port() -> int:
    """A port of this machine's own address on which nobody listens at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
