"""Numbers of replicas in Ray Serve's hands: a model's, and those of gateways."""

# pyright: standard
# Ray's own types are unknown in part.
from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections import Counter
from typing import Any

import msgspec
import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from gguf_fleet.members import PREFIX
from gguf_fleet.need import Need

_REPORT_S = 1.0
_GOING = "STOPPING"
_MOST_NODES = 1000
_GONE_S = 10.0


def number_of(need: Need) -> dict[str, Any]:
    """What a deployment is told of its number of replicas."""
    if need.bounds is None:
        return {"num_replicas": need.replicas}
    policy = AutoscalingPolicy(
        policy_function="gguf_fleet.scale.policy:ScalePolicy",
        policy_kwargs=msgspec.structs.asdict(need.bounds),
    )
    return _scale(policy, need.bounds.least, need.bounds.most)


def one_on_each_node() -> dict[str, Any]:
    """The same for gateways of which each node has one, also a node that comes later.

    One of a node that has gone is looked for somewhere else until there are fewer for so long; no
    other one is taken away for it.
    """
    policy = AutoscalingPolicy(policy_function="gguf_fleet.scale.nodes:NodePolicy")
    count = sum(node["Alive"] for node in ray.nodes())
    scaled = _scale(policy, 1, _MOST_NODES, initial_replicas=count, downscale_delay_s=_GONE_S)
    return {**scaled, "max_replicas_per_node": 1}


def _scale(policy: AutoscalingPolicy, least: int, most: int, **more: Any) -> dict[str, Any]:
    delays = {"upscale_delay_s": 0, "downscale_delay_s": 0, **more}
    with warnings.catch_warnings():
        # The variable that shall replace this field is not read by Ray 2.60.
        warnings.simplefilter("ignore", DeprecationWarning)
        scaling = AutoscalingConfig(
            min_replicas=least,
            max_replicas=most,
            metrics_interval_s=_REPORT_S,
            look_back_period_s=2 * _REPORT_S,
            policy=policy,
            **delays,
        )
    return {"autoscaling_config": scaling}


class Wake:
    """Has Ray start the first replica of a model that has none, by a call that waits for it.

    Ray counts calls that wait for a replica, and a model with one gets a replica at once.
    """

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle
        self._asking: asyncio.Task[None] | None = None

    def __call__(self) -> None:
        """Somebody waits for the model. To be said again and again, on an event loop: one call is
        under way at most."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())

    async def _ask(self) -> None:
        with contextlib.suppress(RayError, RayServeException):
            await self._handle.wake.remote()


def target_counts() -> dict[str, int]:
    """Replicas of each model that are there, start or are replaced; nothing while Ray cannot say.
    It asks Ray, so it may block."""
    found: Counter[str] = Counter()
    try:
        applications = serve.status().applications
    except (RayError, RayServeException):  # its controller is made anew
        return {}
    for application in applications.values():
        for name, deployment in application.deployments.items():
            if name.startswith(PREFIX):
                states = deployment.replica_states
                found[name.removeprefix(PREFIX)] += sum(
                    count for state, count in states.items() if state != _GOING
                )
    return dict(found)
