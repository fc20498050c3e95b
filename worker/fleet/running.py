"""A fleet that runs: deployed, awaited, taken away again."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from ray import serve

from worker.errors import BackendError, BindError
from worker.fleet.app import application
from worker.fleet.file import Fleet
from worker.fleet.members import PREFIX

_NAME = "fleet"
_LOOK_S = 0.2


class FleetFailedError(BackendError):
    """A model of the fleet does not come up."""

    default_code = "FLEET_FAILED"


@contextmanager
def running(
    fleet: Fleet,
    told: threading.Event,
    host: str | None = None,
    command: tuple[str, ...] = ("-m", "worker"),
) -> Generator[str]:
    """Inside, the fleet serves at the URL that it gives, on the cluster this process is in.

    told  gives up waiting for the models; the rest is as for `application`

    Raises FleetFailedError with the reason that the first model gives, BindError, and what
    `application` raises.
    """
    endpoint = fleet.endpoint
    app = application(fleet, host, command)
    try:
        serve.start(http_options={"host": endpoint.host, "port": endpoint.port})
    except (RuntimeError, OSError) as error:
        raise BindError(f"Ray cannot serve at {endpoint.host}:{endpoint.port}: {error}.") from None
    try:
        serve.run_many(
            [serve.RunTarget(app, name=_NAME, route_prefix="/")],
            wait_for_applications_running=False,
        )
        _wait(told)
        shown = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        yield f"http://{shown}:{endpoint.port}"
    finally:
        serve.delete(_NAME)


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
