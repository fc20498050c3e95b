"""The fleet as an application of Ray Serve: a gateway in front, a deployment for each model.

serve run gguf_fleet.app:build file=fleet.toml
"""

# pyright: standard
# Ray's own types are unknown in part.
from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.serve.config import ProxyLocation, RequestRouterConfig
from ray.serve.handle import DeploymentHandle

from gguf_fleet import log
from gguf_fleet.cluster import nodes
from gguf_fleet.command import WORKER, Command
from gguf_fleet.errors import DoesNotFitError, UsageError
from gguf_fleet.file import Fleet, FleetEndpoint, read_fleet
from gguf_fleet.front.gateway import Gateway
from gguf_fleet.front.port import FleetPort
from gguf_fleet.group.group import bundles_of
from gguf_fleet.keys import KeyFile
from gguf_fleet.members import PREFIX
from gguf_fleet.need import Need
from gguf_fleet.plan import FleetPlan, check_fits, fits_one_more, plan_fleet
from gguf_fleet.ray_private import proxy_port
from gguf_fleet.replica import Replica
from gguf_fleet.roster import Roster, follow
from gguf_fleet.scale.served import Wake, number_of, one_on_each_node, target_counts

_HEALTH_PERIOD_S = 1.0
# After three in a row a replica is made anew. One whose machine has vanished answers none.
_HEALTH_TIMEOUT_S = 3.0
_STARTS = 3  # of a replica whose worker does not come up, before Ray gives the model up
# Streams end when they end; a gateway that is taken away waits for them.
_GATEWAY_DRAIN_S = 600.0
# What Ray calls the head of a cluster, and the smallest share of it.
HEAD = "node:__internal_head__"
_SHARE = 0.0001
# Ray's label of a node with its id.
_NODE_LABEL = "ray.io/node-id"
_DRAIN_MARGIN_S = 10.0
_LOOK_S = 1.0


class Ingress:
    """The gateway's deployment: a process that takes the fleet's port on its machine."""

    async def __init__(
        self,
        at: FleetEndpoint,
        affinities: dict[str, str],
        keys: KeyFile | None,
        handles: dict[str, DeploymentHandle],
        asleep: tuple[str, ...],
    ) -> None:
        """asleep: models that may have no replica. Raises BindError."""
        log.configure("json")
        wakes = {name: Wake(handles[name]) for name in asleep}
        roster = Roster(affinities, wakes, target_counts)
        follow(roster)
        # With its options Ray begins to tell a handle who is there.
        self._handles = {name: handle.options() for name, handle in handles.items()}
        gateway = Gateway(roster, keys, shares=at.gateways != "head")
        self._port = FleetPort(gateway, at.host, at.port)
        await self._port.open()

    async def __del__(self) -> None:
        """Another gateway has the port, or nobody: let the streams end."""
        await self._port.close()


def build(arguments: dict[str, str]) -> serve.Application:
    """The application that fleet.toml describes, for `serve run` and KubeRay.

    file  the path of fleet.toml; without it two workers of the demo model
    wait  seconds for the nodes to come that the fleet needs, 0 where it is not said

    Raises UsageError, SaidError, DoesNotFitError.
    """
    file = arguments.get("file")
    if not ray.is_initialized():  # `serve run` looks for a cluster only after this
        ray.init(namespace="serve")
        serve_alone()
    fleet = read_fleet(Path(file) if file else None)
    wait_for_room(fleet, float(arguments.get("wait", 0)))
    return application(fleet)


def wait_for_room(fleet: Fleet, seconds: float) -> None:
    """Until the fleet fits the nodes that there are, or so long.

    On Kubernetes the head is there first, and what fails to be built is not tried again.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            check_fits(plan_fleet(fleet, nodes(with_gpus=fleet.wants_gpus)))
        except DoesNotFitError:
            time.sleep(_LOOK_S)
        else:
            return


def serve_alone() -> None:
    """Start Ray Serve without its proxies: gateways take the port themselves."""
    serve.start(proxy_location=ProxyLocation.Disabled)


def check_proxies(at: FleetEndpoint) -> None:
    """Raise UsageError where Ray's proxies listen on the fleet's port: they would share it."""
    # Their options have port 8000 also where there are none.
    if serve.status().proxies and proxy_port() == at.port:
        raise UsageError(
            f"Ray Serve's own proxies run on port {at.port}, which is the fleet's.",
            hint="Start Ray Serve with `proxy_location: Disabled`, or give the fleet another port.",
        )


def application(
    fleet: Fleet, host: str | None = None, command: Command = WORKER
) -> serve.Application:
    """The same for a fleet that was read.

    host     where all workers listen; None: each on its node's address
    command  of Python, to start a worker
    """
    check_proxies(fleet.endpoint)
    plan = plan_fleet(fleet, nodes(command, with_gpus=fleet.wants_gpus))
    check_fits(plan)
    handles = {need.model: _deployment(need, plan).bind(need, host, command) for need in plan.needs}
    affinities = {need.model: need.affinity for need in plan.needs}
    asleep = tuple(need.model for need in plan.needs if not need.replicas)
    gateways = _gateways(fleet.endpoint)
    return gateways.bind(fleet.endpoint, affinities, fleet.keys, handles, asleep)


def _gateways(at: FleetEndpoint) -> serve.Deployment:
    """Two on the head of the cluster, of which one waits for the other's port; or one on each
    node."""
    if at.gateways == "head":
        # At an update the next ones are there before these go.
        placed: dict[str, Any] = {"num_replicas": 2, "max_surge_percent": 100}
        share = {HEAD: _SHARE}
    else:
        placed, share = one_on_each_node(), {}
    return serve.deployment(
        name="gateway",
        ray_actor_options={"num_cpus": 0, "resources": share},
        graceful_shutdown_timeout_s=_GATEWAY_DRAIN_S,
        graceful_shutdown_wait_loop_s=0.1,
        health_check_period_s=_HEALTH_PERIOD_S,
        health_check_timeout_s=_HEALTH_TIMEOUT_S,
        **placed,
    )(Ingress)


def _deployment(need: Need, plan: FleetPlan) -> serve.Deployment:
    """Where the plan has room, a new replica is there at an update before an old one goes."""
    surges = fits_one_more(plan, need.model)
    where = _nodes_for(need, plan)
    return serve.deployment(
        name=PREFIX + need.model,
        **number_of(need),
        **bundles_of(need, where),
        ray_actor_options={
            "num_cpus": need.cpus,
            "num_gpus": need.gpus,
            "memory": need.memory,
            **({} if need.rpc_nodes else {"label_selector": where}),
        },
        request_router_config=RequestRouterConfig(
            request_router_class="gguf_fleet.members:Members"  # pyright: ignore[reportArgumentType]
        ),
        health_check_period_s=_HEALTH_PERIOD_S,
        health_check_timeout_s=_HEALTH_TIMEOUT_S,
        graceful_shutdown_timeout_s=need.drain + _DRAIN_MARGIN_S,
        graceful_shutdown_wait_loop_s=0.1,
        max_constructor_retry_count=_STARTS,
        max_surge_percent=int(surges),  # rounded up to a replica
    )(Replica)


def _nodes_for(need: Need, plan: FleetPlan) -> dict[str, str]:
    """What keeps Ray from nodes whose GPUs are too small: it counts GPUs, not their memory."""
    machines = (each.machine for each in plan.places)
    small = [each.node for each in machines if each.gpus and not need.may_be_on(each)]
    return {_NODE_LABEL: f"!in({','.join(small)})"} if small else {}
