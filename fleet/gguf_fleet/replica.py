"""A replica of Ray Serve: a process that has one worker in its charge.

It is ready when its worker is, starts it again when that dies, and drains it when Ray takes the
replica away. Ray restarts what dies, so a replica whose worker cannot be kept leaves with it.
"""

# pyright: standard
# Ray's own types are unknown in part.
from __future__ import annotations

import asyncio
import os
from typing import Any

import ray

from gguf_fleet import log
from gguf_fleet.charge import Charge
from gguf_fleet.command import Command
from gguf_fleet.group.group import RpcGroup
from gguf_fleet.need import Need
from gguf_fleet.scale.observed import WorkerLoad

_TOLD_S = 0.5  # for gateways to be told that a replica goes


class Replica:
    """The deployment's class; Ray calls its methods."""

    async def __init__(self, need: Need, host: str | None, command: Command) -> None:
        """Wait for the worker; Ray routes nothing here before. Raises WorkerGoneError.

        host: where the worker listens; None: on this node's address
        """
        log.configure("json")
        self._need = need
        self._node = ray.get_runtime_context().get_node_id()
        self._group: RpcGroup | None = None
        if need.rpc_nodes:
            self._group, need = await RpcGroup.form(need)
        self._charge = Charge(need, host or _address(self._node), command)
        try:
            self._ready = await self._charge.start()
        except BaseException:
            await self._charge.drain()
            raise
        self._load = WorkerLoad()
        self._is_leaving = False
        self._watch = asyncio.create_task(self._leave_with_worker())
        if self._group is not None:
            self._group_watch = asyncio.create_task(self._leave_with_group(self._group))

    def record_replica_metadata(self) -> dict[str, Any]:
        """What a gateway needs to reach the worker: the fields of `Member`."""
        need = self._need
        return {
            "url": self._ready.url,
            "key": self._charge.key,
            "slots": need.num_slots,
            "limit": need.num_slots + need.queue,
            "node": self._node,
        }

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What Ray passes on to `ScalePolicy`."""
        return await self._load.figures(self.record_replica_metadata())

    async def wake(self) -> None:
        """Nothing to do: who calls this has waited until there is a replica."""

    def check_health(self) -> None:
        """Ray kills a replica whose check fails three times. Raises WorkerGoneError.

        One whose worker is started again is well: gateways ask the others meanwhile.
        """
        self._charge.check()

    async def __del__(self) -> None:
        """Ray takes this replica out of all rosters: let its streams end.

        Gateways hear of it at about the same time as this process. What they send until then is
        answered too.
        """
        self._is_leaving = True
        await asyncio.sleep(_TOLD_S)
        await self._charge.drain()

    async def _leave_with_worker(self) -> None:
        error = await self._charge.keep()
        if not self._is_leaving:
            log.get("replica").error("leaving with the worker", why=str(error))
            os._exit(1)

    async def _leave_with_group(self, group: RpcGroup) -> None:
        error = await group.wait_for_exit()
        if not self._is_leaving:
            log.get("replica").error("leaving with a machine of its group", why=str(error))
            self._charge.kill()  # else it may tell its streams that it drains
            os._exit(1)


def _address(node: str) -> str:
    return next(each["NodeManagerAddress"] for each in ray.nodes() if each["NodeID"] == node)
