"""OpenAPI 3.1 of the table of routes and of the structs that read bodies and make answers.

msgspec makes the schemas. Litestar's generator reads them off the handlers' signatures, which name
no struct: bodies are read and answers are encoded by the worker's own bounds.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import msgspec

from worker import __version__
from worker.api.answer.shapes import error_body
from worker.api.described import EVENTS, FORM, JSON, LINES, Api, Described
from worker.errors import RequestError
from worker.http import paths
from worker.http.replies import reply_of_ours
from worker.service.schemas import JsonSchema, Schemas

_FORMS = {
    EVENTS: "Server-sent events; the schema is that of one, and of the JSON in its data.",
    LINES: "A line of JSON for each part; the schema is that of one.",
}
_TEXT = """\
Bodies are JSON; no `Content-Type` is needed. A field that is not known is named in `warnings`;
`null` means "not given". `HEAD` works wherever `GET` does, except for a job's stream.

Every answer carries `x-request-id`: the client's own if it sent one of up to 256 printable
characters, else a new one. `x-correlation-id` comes back as it was sent. Errors hold both beside
`error`, also in the events of a stream.

Any route may answer with an error in its API's shape. Without the key the status is 401, while the
worker is not ready 503, if the queue is full 429. docs/api.md lists the codes."""
_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"x-api-key": []}]
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def document_of(apis: tuple[Api, ...], *, model_id: str, has_key: bool) -> dict[str, Any]:
    """OpenAPI 3.1.

    model_id  of the model that is served
    has_key   whether a key is asked for
    """
    table = [
        (api, route, path)
        for api in apis
        for route in api.routes
        for path in sorted(route.handler.paths)
    ]
    error = reply_of_ours(RequestError(""))[:2]
    errors = {path: type(error_body(path, *error)) for *_, path in table}
    routes = [route for _, route, _ in table]
    taken = [route.takes for route in routes if route.takes is not None]
    schemas = Schemas(taken, [*_answer_types(routes), *errors.values()])
    found: dict[str, dict[str, Any]] = {}
    for api, route, path in table:
        operation = _operation(route, path, schemas, errors[path], model_id) | {"tags": [api.name]}
        (method,) = set(route.handler.http_methods) - {"HEAD"}
        found.setdefault(route.openapi_path(path), {})[method.lower()] = operation
    responses = {kind.__name__: _error(schemas.of(kind)) for kind in errors.values()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "gguf-worker", "version": __version__, "description": _TEXT},
        "servers": [{"url": "/"}],
        "security": _SECURITY if has_key else [{}, *_SECURITY],
        "tags": [{"name": api.name, "description": api.text} for api in apis],
        "paths": found,
        "components": {
            "schemas": schemas.components,
            "responses": responses,
            "securitySchemes": _SCHEMES,
        },
    }


def _answer_types(routes: list[Described]) -> Iterator[Any]:
    for route in routes:
        for kind in (*route.gives.values(), *route.also.values()):
            yield from kind if isinstance(kind, tuple) else (kind,)


def _operation(
    route: Described, path: str, schemas: Schemas, error: type[msgspec.Struct], model_id: str
) -> dict[str, Any]:
    handler = route.handler
    name = handler.fn.__name__
    if len(handler.paths) > 1:
        words = [word for word in path.split("/") if word and "{" not in word]
        name += "".join("_" + re.sub(r"\W", "_", word) for word in words)
    streams = route.takes is not None and {JSON, EVENTS} <= route.gives.keys()
    said = (
        inspect.getdoc(handler.fn),
        "With `stream` events come as they are made." if streams else "",
        route.notes,
    )
    made: dict[str, Any] = {
        "operationId": name,
        "summary": handler.summary,
        "description": " ".join(filter(None, said)),
        "responses": _answers(route, schemas, error),
    }
    parameters = [
        {"name": name, "in": place, "required": place == "path", **_parameter(kind)}
        | ({"example": model_id} if name == "model_id" else {})
        for place, given in (("path", route.params), ("query", route.queries))
        for name, kind in given.items()
    ]
    if parameters:
        made["parameters"] = parameters
    if path in paths.HEALTH:
        made["security"] = []
    if route.takes is not None:
        examples = {name: {"value": body} for name, body in route.examples.items()}
        kind = FORM if route.is_form else JSON
        content = {kind: {"schema": _body(route, schemas), "examples": examples}}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _answers(
    route: Described, schemas: Schemas, error: type[msgspec.Struct]
) -> dict[str, dict[str, Any]]:
    """Status -> response; errors are the same for all routes of an API, so they are components."""
    found: dict[str, dict[str, Any]] = {}
    if route.gives:
        status = route.handler.status_code
        forms = [HTTPStatus(status).phrase + ".", *(_FORMS.get(media, "") for media in route.gives)]
        content = {media: {"schema": _form(route, media, schemas)} for media in route.gives}
        found[str(status)] = {"description": " ".join(filter(None, forms)), "content": content}
    for status, kind in route.also.items():
        found[str(status)] = _error({"anyOf": [schemas.of(kind), schemas.of(error)]})
    shared = {"$ref": f"#/components/responses/{error.__name__}"}
    return found | {"4XX": shared, "5XX": shared}


def _error(schema: JsonSchema) -> dict[str, Any]:
    return {"description": "The error.", "content": {JSON: {"schema": schema}}}


def _form(route: Described, media: str, schemas: Schemas) -> JsonSchema:
    schema = schemas.of(route.gives[media])
    if media != EVENTS:
        return schema
    data = {"type": "string", "contentMediaType": JSON, "contentSchema": schema}
    name = {"event": {"type": "string"}} if route.named else {}
    event = {"type": "object", "properties": {**name, "data": data}, "required": [*name, "data"]}
    if route.named or not route.done:
        return event
    return {"anyOf": [event, {"type": "object", "properties": {"data": {"const": "[DONE]"}}}]}


def _parameter(kind: Any) -> dict[str, Any]:
    """A parameter's schema, and beside it what it means."""
    if isinstance(kind, str):
        return {"description": kind, "schema": {"type": "string"}}
    schema = msgspec.json.schema(kind)
    return {"description": schema.pop("description"), "schema": schema}


def _body(route: Described, schemas: Schemas) -> dict[str, Any]:
    """The struct, with the fields that this route needs."""
    schema = schemas.of(route.takes)
    if not route.needs:
        return schema
    there = {name: {"not": {"type": "null"}} for name in route.needs}
    return {"allOf": [schema, {"required": list(route.needs), "properties": there}]}
