"""A fleet that runs: deployed, awaited, taken away again."""

# pyright: standard
# Ray's own types are unknown in part.
from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

import ray
from ray import serve

from gguf_fleet.app import HEAD, application, serve_alone
from gguf_fleet.command import WORKER, Command
from gguf_fleet.errors import FleetError
from gguf_fleet.file import Fleet
from gguf_fleet.front.port import check_free, url_of
from gguf_fleet.members import PREFIX

_NAME = "fleet"
_LOOK_S = 0.2


class FleetFailedError(FleetError):
    """A model of the fleet does not come up."""

    code = "FLEET_FAILED"


@contextmanager
def open_fleet(
    fleet: Fleet,
    told: threading.Event,
    host: str | None = None,
    command: Command = WORKER,
) -> Generator[str]:
    """Inside, the fleet serves at the URL that it gives, on the cluster this process is in.

    told  gives up waiting for the models; the rest is as for `application`

    Raises FleetFailedError with the reason that the first model gives, BindError, and what
    `application` raises.
    """
    endpoint = fleet.endpoint
    if _is_head():  # the gateway shares the port with its successor, and so with anybody
        check_free(endpoint.host, endpoint.port)
    serve_alone()
    app = application(fleet, host, command)
    try:
        serve.run_many(
            [serve.RunTarget(app, name=_NAME, route_prefix=None)],
            wait_for_applications_running=False,
        )
        _wait(told)
        yield url_of(endpoint.host, endpoint.port)
    finally:
        serve.delete(_NAME)


def _is_head() -> bool:
    """Whether the fleet's port is one of this machine."""
    here = ray.get_runtime_context().get_node_id()
    return any(each["NodeID"] == here and HEAD in each["Resources"] for each in ray.nodes())


def _wait(told: threading.Event) -> None:
    """Until all models are ready, or `told`."""
    while not told.is_set():
        status = serve.status().applications[_NAME]
        if status.status == "RUNNING":
            return
        if status.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            for name, deployment in status.deployments.items():
                if deployment.message:
                    reason = deployment.message.strip().splitlines()[-1]
                    raise FleetFailedError(f"{name.removeprefix(PREFIX)}: {reason}")
            raise FleetFailedError(status.message or "The fleet does not come up.")
        time.sleep(_LOOK_S)
