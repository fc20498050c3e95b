"""The machines of a fleet: this one, or the nodes of a Ray cluster that is joined."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from worker import machine
from worker.errors import DoesNotFitError, UsageError, WorkerError
from worker.fleet.need import FleetMachine

# Of Ray's own processes, two gateways and the command; measured, 749 MiB.
RAY_BYTES = 800 << 20
# Of Ray's store of objects, which a fleet does not use.
_STORE_BYTES = 100 << 20


class ClusterError(WorkerError):
    """Ray cannot be started or reached."""

    default_code = "NO_CLUSTER"


def this_machine() -> FleetMachine:
    """What Ray would get here."""
    room = machine.memory().available - RAY_BYTES
    if room <= 0:
        raise DoesNotFitError("There is no memory left for Ray.")
    return FleetMachine("this machine", machine.usable_cpus(), room)


@contextmanager
def cluster(address: str | None) -> Generator[None]:
    """Inside, this process is connected to the cluster at that address; without one a cluster of
    this machine alone is started, and ended afterwards.

    Raises UsageError without Ray, ClusterError where it does not come up.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR", "0")
    try:
        import ray
    except ImportError:
        raise UsageError(
            "A fleet needs Ray, which is not installed.",
            hint="Install the worker with its extra: `make install FLEET=1`, or gguf-worker[ray].",
        ) from None
    try:
        if address is None:
            own = this_machine()
            ray.init(
                "local",  # else it would join a cluster that somebody has started here
                num_cpus=own.cpus,
                _memory=own.memory,
                object_store_memory=_STORE_BYTES,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="warning",
            )
        else:
            ray.init(address=address, log_to_driver=False, logging_level="warning")
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise ClusterError(f"Ray does not come up: {str(error).splitlines()[0]}") from None
    try:
        yield
    finally:
        ray.shutdown()


def machines_of(address: str) -> list[FleetMachine]:
    """The nodes of the cluster at that address. Raises as `cluster` and `nodes` do."""
    with cluster(address):
        return nodes()


def nodes() -> list[FleetMachine]:
    """Those of the cluster that this process is connected to. Raises DoesNotFitError for none."""
    import ray

    found = [
        FleetMachine(
            f"{node['NodeManagerAddress']} {node['NodeID'][:8]}",
            int(node["Resources"].get("CPU", 0)),
            int(node["Resources"].get("memory", 0)),
            int(node["Resources"].get("GPU", 0)),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
    able = [each for each in found if each.cpus and each.memory]
    if not able:
        raise DoesNotFitError("No node of the cluster has CPUs and memory for workers.")
    return able
