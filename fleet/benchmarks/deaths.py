"""How long the death of each part of a fleet is felt.

A cluster of a head and two nodes in this machine, a CPU each, with two workers of the demo model
whose tokens take 20 ms. A short request goes out 20 times a second, and four streams run; then one
part is killed. What is measured, in seconds since then:

first   until the first request that was sent afterwards has its answer
longest that a request waited for its answer, of all that were sent afterwards
full    until both workers answer again, and what was killed is there again
"""

# pyright: standard
# Ray's own types are unknown in part.
from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.felt import Felt, ask_json
from benchmarks.processes import CONTROLLER, GATEWAY, below, free_port, named, parent_of

_ROOT = Path(__file__).parent.parent.parent
_SLOW = (str(_ROOT / "tests" / "support" / "programs" / "slow.py"),)
_STEP_SECONDS = "0.02"
_OPTIONS = ("-c", "4096", "-np", "4", "--cache-ram", "0", "--threads", "1")
_PATIENCE_S = 90.0
# Before the streams begin: the gateway knows then that both workers are well. And before they are
# left: a request has had its answer then.
_SETTLES_S = 1.0


class Death(NamedTuple):
    """What was felt; `lost`: streams that broke off, `dead`: those of them that ran on the dead."""

    first: float
    longest: float
    full: float
    failed: int
    lost: int
    dead: int


class Scene:
    """A fleet, and what can be killed of it. All but `kill` ask the fleet."""

    def __init__(self, cluster: Any, url: str) -> None:
        self._cluster = cluster
        self.gateway = 0  # the process that has the port
        self._still: list[int] = []  # processes that were stopped
        self.url = url

    async def replicas(self) -> dict[str, dict[str, Any]]:
        """Those that answer, with the process of their worker; none where no gateway answers."""
        try:
            view = await ask_json(self.url, "/fleet")
            self.gateway = view["pid"]
            found = {each["id"]: each for each in view["models"]["demo"]["replicas"]}
            for name, each in found.items():
                if each["well"]:
                    each["pid"] = (await ask_json(self.url, f"/replicas/{name}/info"))["pid"]
        except (OSError, ValueError, KeyError, TimeoutError):
            return {}
        return {name: each for name, each in found.items() if "pid" in each}

    async def streams_of(self, replica: str) -> set[str]:
        """The ids of the requests that it works on."""
        said = await ask_json(self.url, f"/replicas/{replica}/v1/requests")
        return {each["id"] for each in said["data"]}

    def victim(self, what: str, replicas: dict[str, dict[str, Any]]) -> tuple[str, list[int]]:
        """(the replica that goes, or "", and the processes to kill)."""
        if what == "gateway":
            return "", [self.gateway]
        if what == "controller":
            return "", named(CONTROLLER)
        head = self._cluster.head_node.node_id
        away = {name: each for name, each in replicas.items() if each["node"] != head}
        name, each = next(iter((away or replicas).items()))
        if what in ("node", "vanished"):
            return name, []
        return name, [parent_of(each["pid"]) if what == "replica" else each["pid"]]

    def kill(self, what: str, replica: dict[str, Any] | None, pids: list[int]) -> None:
        """SIGKILL, or SIGSTOP."""
        if what == "node":
            self._cluster.remove_node(self._node_of(replica), allow_graceful=False)
        if what == "vanished":
            self._still = _processes_of(self._node_of(replica))
            for pid in self._still:
                os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP if what == "stopped" else signal.SIGKILL)

    def _node_of(self, replica: dict[str, Any] | None) -> Any:
        assert replica is not None
        nodes = self._cluster.worker_nodes
        return next(each for each in nodes if each.node_id == replica["node"])

    def mend(self) -> None:
        """As many nodes as there were."""
        for node in list(self._cluster.worker_nodes):
            if set(_processes_of(node)) & set(self._still):
                self._cluster.remove_node(node, allow_graceful=False)
        for pid in self._still:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._still = []
        if len(self._cluster.worker_nodes) < 2:
            self._cluster.add_node(num_cpus=1, object_store_memory=100 << 20)


# What dies. A node that has vanished is one all of whose processes are stopped: they answer nobody,
# and close no connection.
DEATHS = ("worker", "stopped", "replica", "gateway", "controller", "node", "vanished")


def _processes_of(node: Any) -> list[int]:
    """Ray's own process on a node, and all that it has begun there."""
    raylet = node.all_processes["raylet"][0].process.pid
    return [raylet, *(pid for pid, _ in below(raylet))]


async def felt(scene: Scene, what: str) -> Death:
    """One death."""
    before = await _full(scene, lambda found: len(found) == 2)
    await asyncio.sleep(_SETTLES_S)
    watch = Felt(scene.url)
    await watch.begin(streams=4)
    name, pids = scene.victim(what, before)
    on_dead = set(watch.streams) if what == "gateway" else set[str]()
    if name:
        on_dead = await scene.streams_of(name) & set(watch.streams)
    old = before.get(name, {}).get("pid")
    began = time.monotonic()
    await asyncio.to_thread(scene.kill, what, before.get(name), pids)

    def is_full(found: dict[str, dict[str, Any]]) -> bool:
        again = old not in {each["pid"] for each in found.values()}
        if what == "gateway":
            again = len(set(named(GATEWAY)) - set(pids)) == 2
        elif what == "controller":
            now = named(CONTROLLER)
            again = bool(now) and not set(now) & set(pids)
        return len(found) == 2 and again

    await _full(scene, is_full)
    full = time.monotonic() - began
    await asyncio.sleep(_SETTLES_S)
    lost = await watch.end()
    first, longest, failed = watch.since(began)
    return Death(first, longest, full, failed, len(lost), len(lost & on_dead))


async def _full(
    scene: Scene, is_full: Callable[[dict[str, dict[str, Any]]], bool]
) -> dict[str, dict[str, Any]]:
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        found = await scene.replicas()
        if is_full(found):
            return found
        await asyncio.sleep(0.05)
    raise TimeoutError("the fleet does not come back")


def run(deaths: list[str], tries: int) -> None:
    """Start the cluster, and print the median and the worst of each death."""
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_SERVE_LOG_TO_STDERR": "0",
        "STEP_SECONDS": _STEP_SECONDS,
    }  # fmt: skip
    import ray
    from ray.cluster_utils import Cluster

    from gguf_fleet.file import Fleet, FleetEndpoint, FleetModel
    from gguf_fleet.running import open_fleet

    model = FleetModel(options=_OPTIONS, replicas=2, affinity="none")
    fleet = Fleet(endpoint=FleetEndpoint(port=free_port()), models={"demo": model})
    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.WARNING)
        with open_fleet(fleet, threading.Event(), "127.0.0.1", _SLOW) as url:
            scene = Scene(cluster, url)
            print("death        first (worst)   longest (worst)  full (worst)  failed  lost")
            for what in deaths:
                found: list[Death] = []
                for _ in range(tries):
                    found.append(asyncio.run(felt(scene, what)))
                    scene.mend()
                _print(what, found)
    finally:
        ray.shutdown()
        cluster.shutdown()


def _print(what: str, found: list[Death]) -> None:
    line = f"{what:10}"
    for column in list(zip(*found, strict=True))[:3]:
        line += f"  {statistics.median(column):6.2f} ({max(column):5.2f})"
    others = sum(each.lost - each.dead for each in found)
    dead = sum(each.dead for each in found)
    failed = sum(each.failed for each in found)
    print(f"{line}  {failed:6}  {others}, and {dead} of the dead", flush=True)
