"""Names of Ray that are not public, all in one place: what has no public way in Ray 2.60."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.serve.request_router import RequestRouter


def proxy_port() -> int:
    """The port of Ray Serve's own proxies, also where none run; `serve.status` does not say it."""
    from ray.serve.context import _get_global_client  # pyright: ignore[reportPrivateUsage]

    client: Any = _get_global_client()
    return client.http_config.port


def deployment_of(router: RequestRouter) -> str:
    """The name of the deployment that a router is for."""
    return router._deployment_id.name  # pyright: ignore[reportPrivateUsage]


def memory_of(nbytes: int) -> dict[str, Any]:
    """For `ray.init`: how much memory a cluster of this machine alone may give away."""
    return {"_memory": nbytes}
