"""GET /openapi.json and /docs. Whoever asks first has them made, in a thread; then they are kept.

Nothing that makes them is imported before: the worker is ready sooner.
"""

from __future__ import annotations

from html import escape
from typing import Any

import msgspec
from litestar import Request, Response, get

from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker

# Stands for the worker's own address in the page.
ADDRESS = "{address}"


class Description(msgspec.Struct, frozen=True):
    """What the API is, for programs and for people.

    page     HTML, with ADDRESS in it
    headers  with which it is sent
    """

    document: bytes
    page: str
    headers: dict[str, str]


def description_of(worker: Worker, loaded: Loaded) -> Description:
    """Made anew; blocks."""
    from worker.service.description.apis import APIS
    from worker.service.description.document import document_of
    from worker.service.description.page import HEADERS, page_of

    has_key = bool(worker.settings.api_keys)
    has_page = worker.settings.page
    document = document_of(APIS, model_id=loaded.model_id, has_key=has_key, has_page=has_page)
    return Description(msgspec.json.encode(document), page_of(document), HEADERS)


@get("/openapi.json", summary="This description (OpenAPI 3.1)")
async def openapi_json(description: Description) -> Response[bytes]:
    """Of all paths."""
    return Response(description.document, media_type="application/json")


@get("/docs", summary="This description, to read")
async def docs(request: Request[Any, Any, Any], description: Description) -> Response[str]:
    """One page of HTML, without a script and without anything from elsewhere."""
    scope = request.scope
    # Litestar's own address of a request is kept for the last 128 of them.
    host = request.headers.get("host") or ":".join(map(str, scope["server"] or ("localhost",)))
    page = description.page.replace(ADDRESS, escape(f"{scope['scheme']}://{host}"))
    return Response(page, media_type="text/html", headers=description.headers)
