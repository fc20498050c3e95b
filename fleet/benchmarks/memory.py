"""What a fleet of two demo workers holds beside its workers, process by process."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter

from benchmarks.processes import GATEWAY, REPLICA, below, free_port, memory_bytes


def run() -> None:
    """Print it: what each kind of process has to itself, and its share of what it has not."""
    from gguf_fleet.cluster import cluster
    from gguf_fleet.file import DEMO, Fleet, FleetEndpoint
    from gguf_fleet.running import open_fleet

    fleet = Fleet(endpoint=FleetEndpoint(port=free_port()), models=DEMO.models)
    with cluster(None), open_fleet(fleet, threading.Event(), "127.0.0.1"):
        found: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for pid, line in [*below(), (os.getpid(), "the command")]:
            with contextlib.suppress(OSError):
                found[_kind(line)] += memory_bytes(pid)
                counts[_kind(line)] += 1
    for kind, total in found.most_common():
        print(f"{total >> 20:6} MiB  {counts[kind]:2} x {kind}")


def _kind(line: str) -> str:
    if line == "the command":
        return line
    if line.startswith(GATEWAY):
        return "gateway"
    if line.startswith(REPLICA):
        return "replica, beside its worker"
    if " -m worker serve" in line:
        return "worker"
    if line.startswith("ray::Serve"):
        return line.split()[0]
    return "Ray: its own processes"
