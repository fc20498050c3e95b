"""The machines of a fleet: this one, or the nodes of a Ray cluster that is joined."""

# pyright: standard
# Ray's own types are unknown in part.
from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gguf_fleet.command import WORKER, Command, ask_plan
from gguf_fleet.device import FleetDevice, devices_here
from gguf_fleet.errors import DoesNotFitError, FleetError, UsageError
from gguf_fleet.need import FleetMachine

# Of Ray's own processes, two gateways and the command; measured, 751 MiB.
RAY_BYTES = 800 << 20
# Of Ray's store of objects, which a fleet does not use.
_STORE_BYTES = 100 << 20
# For a node to start a process that asks its worker for GPUs.
_PROBE_S = 150.0
_MOST_SAID = 300  # characters of what Ray says


class ClusterError(FleetError):
    """Ray cannot be started or reached."""

    code = "NO_CLUSTER"


def this_machine(*, with_gpus: bool) -> FleetMachine:
    """What Ray would get here. with_gpus: a model wants some, so they are looked for.

    Raises DoesNotFitError, FleetError.
    """
    said = ask_plan(())
    room = said.here.available - RAY_BYTES
    if room <= 0:
        raise DoesNotFitError("There is no memory left for Ray.")
    devices = devices_here() if with_gpus else ()
    return FleetMachine("this machine", said.cpus, room, len(devices), devices)


@contextmanager
def cluster(address: str | None, *, with_gpus: bool = False) -> Generator[None]:
    """Inside, this process is connected to the cluster at that address; without one a cluster of
    this machine alone is started, and ended afterwards.

    with_gpus: that machine's GPUs are given away too

    Raises UsageError without Ray, ClusterError where it does not come up.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR", "0")
    try:
        import ray

        from gguf_fleet.ray_private import memory_of
    except ImportError:
        raise UsageError(
            "A fleet needs Ray, which is not installed.",
            hint="Install all of gguf-fleet: `make install FLEET=1`, or `pip install ./fleet`.",
        ) from None
    began = time.time()
    try:
        if address is None:
            own = this_machine(with_gpus=with_gpus)
            ray.init(
                "local",  # else it would join a cluster that somebody has started here
                num_cpus=own.cpus,
                num_gpus=own.gpus,
                **memory_of(own.memory),
                object_store_memory=_STORE_BYTES,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.WARNING,
            )
        else:
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except FleetError:
        raise
    except Exception as error:  # Ray raises errors of its own, and plain ones
        raise _does_not_come_up(error, began) from error
    try:
        yield
    finally:
        ray.shutdown()


def _does_not_come_up(error: Exception, began: float) -> ClusterError:
    """What Ray says, and what its processes wrote last, if they have begun."""
    said = " ".join(str(error).split()) or type(error).__name__
    sentence = f"Ray does not come up: {said[:_MOST_SAID].rstrip('.')}."
    folder = _logs(began)
    if folder is None:
        return ClusterError(sentence, hint="Look at its address, its port, and the rights in /tmp.")
    last = _last_words(folder)
    return ClusterError(
        f"{sentence} {last[0]} says: {last[1]}" if last else sentence,
        hint=f"Its logs are in {folder}.",
    )


def _logs(began: float) -> Path | None:
    """The folder with the logs of a session that was begun since then."""
    top = Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray"  # noqa: S108  (it is Ray's)
    with contextlib.suppress(OSError):
        found = [path for path in top.glob("session_*/logs") if path.stat().st_mtime >= began]
        return max((path.resolve() for path in found), default=None)
    return None


def _last_words(folder: Path) -> tuple[str, str] | None:
    """A log's name and the last line in it: of standard errors, which hold failures alone, else
    the last error in the others."""
    for pattern, mark in (("*.err", ""), ("*.out", " E "), ("*.log", "ERROR")):
        for path in sorted(folder.glob(pattern)):
            with contextlib.suppress(OSError):
                lines = path.read_text(errors="replace").splitlines()
                said = [line.strip() for line in lines if line.strip() and mark in line]
                if said:
                    return path.name, said[-1][:_MOST_SAID]
    return None


def machines_of(address: str, *, with_gpus: bool) -> list[FleetMachine]:
    """The nodes of the cluster at that address. Raises as `cluster` and `nodes` do."""
    with cluster(address):
        return nodes(with_gpus=with_gpus)


def nodes(command: Command = WORKER, *, with_gpus: bool) -> list[FleetMachine]:
    """Those of the cluster that this process is connected to. Raises DoesNotFitError for none.

    command: of Python, to ask a worker for the GPUs of its machine, where a model wants some
    """
    import ray

    found = [node for node in ray.nodes() if node["Alive"]]
    having = [node["NodeID"] for node in found if node["Resources"].get("GPU", 0)]
    devices = _devices_of(having, command) if with_gpus else {}
    machines = [_machine(node, devices.get(node["NodeID"], ())) for node in found]
    able = [each for each in machines if each.cpus and each.memory]
    if not able:
        raise DoesNotFitError("No node of the cluster has CPUs and memory for workers.")
    return able


def _machine(node: dict[str, Any], devices: tuple[FleetDevice, ...] | str) -> FleetMachine:
    """devices: or why they are not known"""
    amounts, number = node["Resources"], node["NodeID"]
    gpus = int(amounts.get("GPU", 0))
    return FleetMachine(
        f"{node['NodeManagerAddress']} {number[:8]}",
        int(amounts.get("CPU", 0)),
        int(amounts.get("memory", 0)),
        gpus,
        () if isinstance(devices, str) else devices[:gpus],
        devices if isinstance(devices, str) else "",
        number,
    )


def _devices_of(ids: list[str], command: Command) -> dict[str, tuple[FleetDevice, ...] | str]:
    """The GPUs of these nodes, each asked of a worker there, or why it does not say them."""
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    probe = ray.remote(_list_devices)
    asked = {
        number: probe.options(
            num_cpus=0,
            # A task without GPUs sees all of its node, unless this is set to 1 there.
            runtime_env={"env_vars": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}},
            scheduling_strategy=NodeAffinitySchedulingStrategy(number, soft=False),
        ).remote(command)
        for number in ids
    }
    # What runs now will have left when its replica is made anew, as at an update.
    given = ray.available_resources().get("GPU", 0) < ray.cluster_resources().get("GPU", 0)
    found: dict[str, tuple[FleetDevice, ...] | str] = {}
    for number, answer in asked.items():
        try:
            devices: tuple[FleetDevice, ...] | str = ray.get(answer, timeout=_PROBE_S)
        except RayError as error:
            devices = str(error).strip().rpartition("\n")[2]
        if given and not isinstance(devices, str):
            devices = tuple(each.whole() for each in devices)
        found[number] = devices
    return found


def _list_devices(command: Command) -> tuple[FleetDevice, ...] | str:
    try:
        return devices_here(command)
    except FleetError as error:
        return str(error)
