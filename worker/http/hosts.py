"""The header Host: it names one host (RFC 9112, 3.2), and without a key one that is this worker's.

A page can point a name of its own at this machine, and then counts for a browser as the worker's
own page (DNS rebinding). It cannot do so with an address, nor with localhost.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from urllib.parse import urlsplit

from worker.errors import ForbiddenError, RequestError
from worker.limits import HOST
from worker.values import ANY_HOST, UNIX, bare

_SHAPE = re.compile(rb"([A-Za-z0-9._~-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{0,5})?")
# Always this machine (RFC 6761, 6.3). Other names lead where the network says, also those without a
# dot and those below .local or .internal.
_LOCALHOST = ("localhost", "*.localhost")


class ForeignHostError(ForbiddenError, code="unknown_host"):
    """The header Host has a name that is not known to be this worker's."""


class Hosts:
    """What the header Host may be."""

    def __init__(self, allowed: tuple[str, ...], own: str, *, has_key: bool) -> None:
        """allowed: names, `*.example.com` with all below it; own: addresses and names to listen on,
        separated by commas; the machine's own name is one unless all of them are loopback"""
        listens = [bare(one) for one in own.lower().split(",") if not one.startswith(UNIX)]
        names = [*allowed, *_LOCALHOST, *listens]
        if not all(map(is_loopback, listens)):
            names.append(socket.gethostname().lower())
        self._names = frozenset(names)
        self._ends = tuple(name[1:] for name in names if name.startswith("*."))
        self._takes_all = has_key or ANY_HOST in allowed

    def refusal_of(self, headers: list[tuple[bytes, bytes]]) -> RequestError | None:
        """The error for a header that is not right; none at all is HTTP/1.0's way."""
        hosts = [value for name, value in headers if name == b"host"]
        if not hosts:
            return None
        if len(hosts) > 1 or not _is_one(hosts[0]):
            return RequestError(
                "The header Host must name one host, with or without a port.", param="host"
            )
        host = hosts[0].decode().lower()
        if not host.endswith("]"):
            host = host.rpartition(":")[0] or host
        host = (bare(host) if host[:1] == "[" else host).removesuffix(".")
        is_own = host in self._names or host.endswith(self._ends) or is_address(host)
        if not host or self._takes_all or is_own:
            return None
        return ForeignHostError(
            "The header Host has a name that this worker does not know.",
            hint=f"Start it with --allowed-hosts {host}, or with a key.",
            param="host",
        )


def is_address(host: str) -> bool:
    """Whether it is a number of IPv4 or IPv6, without brackets."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether an address, or the name localhost, is this machine's own."""
    if not is_address(host):
        return host == "localhost"
    address = ipaddress.ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _is_one(host: bytes) -> bool:
    if len(host) > HOST.most or not _SHAPE.fullmatch(host):
        return False
    try:
        parts = urlsplit(b"http://" + host)
        return parts.port != 0
    except ValueError:  # a port above 65535, brackets around what is no address
        return False
