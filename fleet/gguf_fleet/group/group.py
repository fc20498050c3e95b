"""The machines of one replica: its worker here, an RPC server on each of the others.

Ray Serve makes a placement group for each such replica, a bundle on each machine. The replica's
own actor is in the first bundle and starts one more in each other one. They share one fate: the
actors end with the replica that owns them, and the replica ends with the first of them. Then Ray
makes the group anew.
"""

# pyright: standard
# Ray's own types are unknown in part.
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util import get_current_placement_group, get_node_ip_address
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from gguf_fleet.group.server import RpcCharge, RpcServerGoneError
from gguf_fleet.need import Need


def bundles_of(need: Need, where: dict[str, str]) -> dict[str, Any]:
    """What a deployment is told of a replica's machines. where: labels of those that may be one"""
    if not need.rpc_nodes:
        return {}
    common = {"CPU": need.cpus, **({"GPU": need.gpus} if need.gpus else {})}
    own, other = {**common, "memory": need.memory}, {**common, "memory": need.rpc_memory}
    return {
        "placement_group_bundles": [own, *[other] * need.rpc_nodes],
        "placement_group_strategy": "STRICT_SPREAD",
        **({"placement_group_bundle_label_selector": [where]} if where else {}),
    }


class RpcMachine:
    """An actor: one RPC server, on its node's address, with the GPUs that Ray gave the actor."""

    def __init__(self, threads: int, gpus: int) -> None:
        self._charge = RpcCharge(get_node_ip_address(), threads, gpus)

    async def start(self) -> str:
        """HOST:PORT, once it listens. Raises RpcServerGoneError."""
        return await self._charge.start()

    async def wait_for_exit(self) -> str:
        return str(await self._charge.wait_for_exit())


class RpcGroup:
    """The RPC servers of one replica, seen from its own process."""

    def __init__(self, actors: Sequence[Any]) -> None:
        self._actors = actors

    @classmethod
    async def form(cls, need: Need) -> tuple[RpcGroup, Need]:
        """Start them: the group, and the need with the servers in its worker's options.

        Raises RpcServerGoneError.
        """
        placed = get_current_placement_group()
        assert placed is not None
        machine = ray.remote(RpcMachine)
        group = cls([
            machine.options(
                num_cpus=need.cpus,
                num_gpus=need.gpus,
                memory=need.rpc_memory,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group=placed, placement_group_bundle_index=1 + number
                ),
            ).remote(need.cpus, need.gpus)
            for number in range(need.rpc_nodes)
        ])  # fmt: skip
        try:
            servers = await asyncio.gather(*(actor.start.remote() for actor in group._actors))
        except RayError as error:
            raise RpcServerGoneError(str(error).splitlines()[-1]) from None
        return group, need.with_servers(servers)

    async def wait_for_exit(self) -> RpcServerGoneError:
        """Wait until one of them is gone: why."""
        waits = [asyncio.ensure_future(_end(actor)) for actor in self._actors]
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return RpcServerGoneError(done.pop().result())


async def _end(actor: Any) -> str:
    try:
        return await actor.left.remote()
    except RayError as error:
        return f"The machine of an RPC server is gone: {type(error).__name__}."
