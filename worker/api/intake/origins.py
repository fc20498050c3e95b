"""Who may ask for what, where there is no key: the rule of each route that changes something."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

from worker.errors import ForbiddenError
from worker.http.headers import Cors
from worker.http.hosts import is_loopback
from worker.settings import Settings

# Characters of an origin: a name has 253 at most. Python keeps the last 128 that it split.
_LONGEST = 300
# Of Litestar's connection and handler.
_Guard = Callable[[Any, Any], Awaitable[None]]


class Asker(Enum):
    """Who may ask without a key. A program sends no Origin and may always, but for the last.

    A page from elsewhere can make a browser here send a POST, but not without its Origin; and a GET
    without one (`<img>`, a link), but not without saying that the site is another.
    """

    NAMED = "pages of the worker, of this machine and of --cors"
    OWN = "pages of the worker and of this machine"
    LOCAL = "programs and pages of this machine"


def guard_of(askers: Mapping[Any, Asker], settings: Settings) -> _Guard:
    """What raises ForbiddenError before a route is asked, unless there is a key.

    askers: the function behind a route -> who may ask; others may be asked by everybody
    """
    cors, has_key = Cors(settings.cors), bool(settings.api_keys)

    async def guard(connection: Any, handler: Any) -> None:
        asker = askers.get(handler.fn)
        if has_key or asker is None:
            return
        client = connection.client
        if asker is Asker.LOCAL and (client is None or not is_loopback(client.host)):
            raise ForbiddenError(
                "Without an API key only this machine may ask for that.",
                hint="Start the worker with --api-key and send the key.",
            )
        if not _is_known(asker, connection.headers, cors):
            hint = "Name its origin by --cors." if asker is Asker.NAMED else None
            raise ForbiddenError("Pages of other origins may not ask for that.", hint=hint)

    return guard


def _is_known(asker: Asker, headers: Mapping[str, str], cors: Cors) -> bool:
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is None:
        return site in (None, "none", "same-origin")
    if is_loopback(_host_of(origin)):
        return True
    if asker is Asker.NAMED and cors.names(origin.encode("latin-1")):
        return True
    # A proxy may write another Host; what browsers say of the site no page can.
    is_own = origin.partition("://")[2] == headers.get("host") or site == "same-origin"
    return is_own and asker is not Asker.LOCAL


def _host_of(origin: str) -> str:
    if len(origin) > _LONGEST:
        return ""
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""
