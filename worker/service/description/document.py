"""The OpenAPI document of the whole API.

Litestar's generator does not make it. Its schemas of structs leave out limits, texts and which
fields an answer always has; its responses have one media type, no headers and no codes, and no
route can be open where the others ask for a key. All that would be put in afterwards.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import msgspec

from worker import __version__
from worker.api.common.described import JSON, Api, Described
from worker.api.common.shapes import AnthropicErrorReply, OllamaErrorReply
from worker.http import paths
from worker.http.replies import ErrorReply
from worker.service.description.answers import Responded
from worker.service.description.schemas import Schemas

_TEXT = """\
Bodies are JSON; no `Content-Type` is needed. A field that is not known is named in `warnings`;
`null` means "not given". `HEAD` works wherever `GET` does, except for a job's stream.

Every answer carries `x-request-id`: the client's own where it sent one of up to 256 printable
characters, else a new one. `x-correlation-id` comes back as it was sent. Errors hold both beside
`error`, also in the events of a stream."""
_PAGE = (
    "Who would rather have HTML than JSON gets the worker's page, without a key and in any state."
)
_BEARER: dict[str, list[str]] = {"bearer": []}
_API_KEY: dict[str, list[str]] = {"x-api-key": []}


def document_of(
    apis: tuple[Api, ...], *, model_id: str, has_key: bool, has_page: bool
) -> dict[str, Any]:
    """OpenAPI 3.1.

    model_id  of the model that is served
    has_key   whether a key is asked for
    has_page  whether browsers get a page
    """
    routes = [route for api in apis for route in api.routes]
    taken = [route.takes for route in routes if route.takes is not None]
    schemas = Schemas(taken, [*_given(routes), ErrorReply, AnthropicErrorReply, OllamaErrorReply])
    answers = Responded(schemas)
    found: dict[str, dict[str, Any]] = {}
    page: dict[str, Any] = {} if has_page else {"pages": {}}
    for api in apis:
        for route in api.routes:
            for path in sorted(route.handler.paths):
                operation = _operation(
                    msgspec.structs.replace(route, **page), path, schemas, answers
                )
                operation["tags"] = [api.name]
                if path in paths.HEALTH:
                    operation["security"] = []
                for parameter in operation.get("parameters", ()):
                    if parameter["name"] == "model_id":
                        parameter["example"] = model_id
                (method,) = set(route.handler.http_methods) - {"HEAD"}
                found.setdefault(route.shown(path), {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "gguf-worker", "version": __version__, "description": _TEXT},
        "servers": [{"url": "/"}],
        "security": [*([] if has_key else [{}]), _BEARER, _API_KEY],
        "tags": [{"name": api.name, "description": api.text} for api in apis],
        "paths": found,
        "components": {
            "schemas": schemas.components,
            "responses": answers.components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _given(routes: list[Described]) -> Iterator[Any]:
    for route in routes:
        for kind in (*route.gives.values(), *route.also.values()):
            yield from kind if isinstance(kind, tuple) else (kind,)


def _operation(route: Described, path: str, schemas: Schemas, answers: Responded) -> dict[str, Any]:
    handler = route.handler
    name = handler.fn.__name__
    if len(handler.paths) > 1:
        name += "".join(f"_{word}" for word in path.split("/") if word.isidentifier())
    said = (inspect.getdoc(handler.fn) or "", route.notes, _PAGE if path in route.pages else "")
    made: dict[str, Any] = {
        "operationId": name,
        "summary": handler.summary,
        "description": " ".join(text for text in said if text),
    }
    parameters = [
        {"name": name, "in": place, "required": place == "path", **_parted(kind)}
        for place, given in (("path", route.params), ("query", route.queries))
        for name, kind in given.items()
    ]
    if parameters:
        made["parameters"] = parameters
    if route.takes is not None:
        examples = {name: {"value": body} for name, body in route.examples.items()}
        made["requestBody"] = {
            "required": True,
            "content": {JSON: {"schema": _body(route, schemas), "examples": examples}},
        }
    return {**made, "responses": answers.of(route, path)}


def _parted(kind: Any) -> dict[str, Any]:
    """A parameter's schema, and beside it what it means."""
    schema = msgspec.json.schema(kind)
    return {"description": schema.pop("description"), "schema": schema}


def _body(route: Described, schemas: Schemas) -> dict[str, Any]:
    """The struct, with the fields that this route needs."""
    schema = schemas.of(route.takes)
    if not route.needs:
        return schema
    there = {name: {"not": {"type": "null"}} for name in route.needs}
    return {"allOf": [schema, {"required": list(route.needs), "properties": there}]}
