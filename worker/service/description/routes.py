"""GET /openapi.json and /docs. Whoever asks first has them made, in a thread; then they are kept.

Nothing that makes them is imported before: the worker is ready sooner.
"""

from __future__ import annotations

from html import escape

import msgspec
from litestar import Response, get

from worker.api.common.body import HttpRequest
from worker.api.common.described import HTML, JSON, Described


class Description(msgspec.Struct, frozen=True):
    """What the API is, for programs and for people.

    page     HTML, as `page_of` makes it
    headers  with which it is sent
    """

    document: bytes
    page: str
    headers: dict[str, str]


@get("/openapi.json", summary="This description (OpenAPI 3.1)")
async def openapi_json(description: Description) -> Response[bytes]:
    """Of all paths."""
    return Response(description.document, media_type="application/json")


@get("/docs", summary="This description, to read")
async def docs(request: HttpRequest, description: Description) -> Response[str]:
    """One page of HTML, without a script and without anything from elsewhere."""
    from worker.service.description.page import ADDRESS

    scope = request.scope
    # Litestar's own address of a request is kept for the last 128 of them.
    host = request.headers.get("host") or ":".join(map(str, scope["server"] or ("localhost",)))
    page = description.page.replace(ADDRESS, escape(f"{scope['scheme']}://{host}"))
    return Response(page, media_type="text/html", headers=description.headers)


ROUTES = (
    Described(handler=openapi_json, gives={JSON: dict}),
    Described(handler=docs, gives={HTML: str}),
)
