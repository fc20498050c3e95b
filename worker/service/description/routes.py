"""GET /openapi.json and /docs. Whoever asks first has them made, in a thread; then they are kept.

Nothing that makes them is imported before: the worker is ready sooner.
"""

from __future__ import annotations

from html import escape

import msgspec
from litestar import Response, get

from worker.api.described import HTML, JSON, Described
from worker.api.intake.body import HttpRequest


class Description(msgspec.Struct, frozen=True):
    """What the API is, for programs and for people.

    pages    HTML, as `pages_of` makes it
    headers  with which it is sent
    """

    document: bytes
    pages: dict[str, str]
    headers: dict[str, str]


@get("/openapi.json", summary="This description (OpenAPI 3.1)")
async def openapi_json(description: Description) -> Response[bytes]:
    """Of all paths."""
    return Response(description.document, media_type="application/json")


@get("/docs", summary="This description, to read")
async def docs(request: HttpRequest, description: Description, api: str = "") -> Response[str]:
    """A page of HTML for each API, without a script and without anything from elsewhere."""
    from worker.service.description.page import ADDRESS

    scope = request.scope
    # Litestar's own address of a request is kept for the last 128 of them.
    host = request.headers.get("host") or ":".join(map(str, scope["server"] or ("localhost",)))
    page = description.pages.get(api, description.pages[""])
    page = page.replace(ADDRESS, escape(f"{scope['scheme']}://{host}"))
    return Response(page, media_type="text/html", headers=description.headers)


ROUTES = (
    Described(handler=openapi_json, gives={JSON: dict}),
    Described(
        handler=docs,
        gives={HTML: str},
        queries={"api": "An API's name, such as `OpenAI`; any other gives the first page."},
    ),
)
