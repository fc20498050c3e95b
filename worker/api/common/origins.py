"""Who may ask for what ends something, where there is no key."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from worker.api.common.body import HttpRequest
from worker.errors import ForbiddenError
from worker.lifecycle.worker import Worker

# Characters of an origin: a name has 253 at most. Python keeps the last 128 that it split.
_LONGEST = 300


def check_local(request: HttpRequest, worker: Worker) -> None:
    """Raise ForbiddenError unless there is a key, or a program of this machine asks."""
    if worker.settings.api_keys:
        return
    if request.client is None or not is_loopback(request.client.host):
        raise ForbiddenError(
            "Without an API key only this machine may ask for that.",
            hint="Start the worker with --api-key and send the key.",
        )
    check_origin(request, worker)


def check_origin(request: HttpRequest, worker: Worker) -> None:
    """Raise ForbiddenError where there is no key, and a page asks that is not this machine's.

    A page from elsewhere can make a browser here send a POST, but not without its Origin.
    """
    origin = request.headers.get("origin")
    if worker.settings.api_keys or origin is None:
        return
    if not is_loopback(_host_of(origin)):
        raise ForbiddenError("Pages of other origins may not ask for that.")


def is_loopback(host: str) -> bool:
    """Whether an address, or the name localhost, is this machine's own."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _host_of(origin: str) -> str:
    if len(origin) > _LONGEST:
        return ""
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""
