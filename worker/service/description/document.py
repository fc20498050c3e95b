"""The OpenAPI document of the whole API.

Litestar's generator does not make it. Its schemas of structs leave out limits, texts and which
fields an answer always has; its responses have one media type, no headers and no codes, and no
route can be open where the others ask for a key. All that would be put in afterwards.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import msgspec

from worker import __version__
from worker.api.answer.errors import reply_of
from worker.api.answer.shapes import (
    AnthropicErrorReply,
    OllamaErrorReply,
    TeiErrorReply,
    shaped,
)
from worker.api.described import BROKEN, EVENTS, HTML, JSON, LINES, Api, Described, before
from worker.http import paths
from worker.http.replies import ErrorReply
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.service.description.page import HEADERS, pages_of
from worker.service.description.routes import Description
from worker.service.description.schemas import JsonSchema, Schemas

# The field of `error` that programs tell errors apart by.
_TOLD_BY: dict[type[msgspec.Struct], str] = {ErrorReply: "code", AnthropicErrorReply: "type"}
_FORMS = {
    EVENTS: "Server-sent events; the schema is that of one, and of the JSON in its data.",
    LINES: "A line of JSON for each part; the schema is that of one.",
}


class _Refused(msgspec.Struct):
    """All errors of one route that have one status."""

    kind: type[msgspec.Struct]
    codes: dict[str | int | None, str]  # -> when
    headers: dict[str, str]

    @property
    def name(self) -> str:
        """Of what it is, and the codes where it has some."""
        if self.kind not in _TOLD_BY:
            return self.kind.__name__
        return "-".join(map(str, self.codes))


class Responded:
    """Errors are the same for many routes, so they are components.

    components  name -> response
    """

    def __init__(self, schemas: Schemas) -> None:
        self.components: dict[str, Any] = {}
        self._schemas = schemas

    def of(self, api: Api, route: Described, path: str) -> dict[str, Any]:
        """Status -> response, or where it is."""
        found: dict[str, Any] = {}
        if route.gives:
            found[str(route.handler.status_code)] = self._good(route, path)
        for status, refused in sorted(_refused(api, route, path).items()):
            response = self._bad(refused)
            other = route.also.get(status)
            if other is not None:
                content = response["content"][JSON]
                schemas = [self._schemas.of(other), content["schema"]]
                response["content"] = {JSON: {**content, "schema": {"anyOf": schemas}}}
                found[str(status)] = response
            else:
                found[str(status)] = {"$ref": self._place(status, refused, response)}
        return found

    def _good(self, route: Described, path: str) -> dict[str, Any]:
        content = {media: {"schema": self._form(route, media)} for media in route.gives}
        if path in route.pages:
            content[HTML] = {"schema": self._schemas.of(str)}
        forms = " ".join(_FORMS[media] for media in content if media in _FORMS)
        phrase = HTTPStatus(route.handler.status_code).phrase
        return {"description": f"{phrase}. {forms}".strip(), "content": content}

    def _form(self, route: Described, media: str) -> JsonSchema:
        schema = self._schemas.of(route.gives[media])
        if media != EVENTS:
            return schema
        data = {"type": "string", "contentMediaType": JSON, "contentSchema": schema}
        event = {"type": "object", "properties": {"data": data}, "required": ["data"]}
        if route.named:
            event["properties"] = {"event": {"type": "string"}, "data": data}
            event["required"] = ["event", "data"]
            return event
        if not route.done:
            return event
        return {"anyOf": [event, {"type": "object", "properties": {"data": {"const": "[DONE]"}}}]}

    def _bad(self, refused: _Refused) -> dict[str, Any]:
        schema = self._schemas.of(refused.kind)
        said = list(refused.codes.values())
        told_by = _TOLD_BY.get(refused.kind)
        if told_by is not None:
            said = [f"`{code}`: {when}" for code, when in refused.codes.items()]
            codes = {"properties": {told_by: {"enum": list(refused.codes)}}}
            schema = {"allOf": [schema, {"properties": {"error": codes}}]}
        made: dict[str, Any] = {
            "description": "\n".join(said),
            "content": {JSON: {"schema": schema}},
        }
        if refused.headers:
            made["headers"] = {
                name: {"schema": {"type": "string"}, "example": value}
                for name, value in sorted(refused.headers.items())
            }
        return made

    def _place(self, status: int, refused: _Refused, response: dict[str, Any]) -> str:
        stem = name = f"{status}-{refused.name}"
        count = 1
        while self.components.setdefault(name, response) != response:
            count += 1
            name = f"{stem}-{count}"
        return f"#/components/responses/{name}"


def _refused(api: Api, route: Described, path: str) -> dict[int, _Refused]:
    """Status -> errors, as the code that answers them makes them."""
    found: dict[int, _Refused] = {}
    page = route.pages.get(path, ())
    errors: list[tuple[Exception, Any]] = [(error, reply_of) for error in before(path)]
    errors += [(error, api.reply_of) for error in (*route.errors, *page, BROKEN)]
    for error, reply in errors:
        status, body, headers = reply(error)
        told = shaped(path, status, body)
        told_by = _TOLD_BY.get(type(told))
        code = getattr(getattr(told, "error", None), told_by) if told_by else body.error.message
        refused = found.setdefault(status, _Refused(type(told), {}, headers))
        refused.headers |= headers
        when = refused.codes.get(code)
        text = body.error.message
        refused.codes[code] = text if when in (None, text) else f"{when} {text}"
    return found


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
    errors = [ErrorReply, AnthropicErrorReply, OllamaErrorReply, TeiErrorReply]
    schemas = Schemas(taken, [*_given(routes), *errors])
    answers = Responded(schemas)
    found: dict[str, dict[str, Any]] = {}
    page: dict[str, Any] = {} if has_page else {"pages": {}}
    for api in apis:
        for route in api.routes:
            for path in sorted(route.handler.paths):
                shown = msgspec.structs.replace(route, **page)
                operation = _operation(shown, path, schemas)
                operation["responses"] = answers.of(api, shown, path)
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


def _operation(route: Described, path: str, schemas: Schemas) -> dict[str, Any]:
    handler = route.handler
    name = handler.fn.__name__
    if len(handler.paths) > 1:
        name += "".join(f"_{word}" for word in path.split("/") if word.isidentifier())
    streams = route.takes is not None and {JSON, EVENTS} <= route.gives.keys()
    said = (
        inspect.getdoc(handler.fn) or "",
        "With `stream` events come as they are made." if streams else "",
        route.notes,
        _PAGE if path in route.pages else "",
    )
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
    return made


def _parted(kind: Any) -> dict[str, Any]:
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


def description_of(apis: tuple[Api, ...], worker: Worker, loaded: Loaded) -> Description:
    """Made anew; blocks."""
    has_key, has_page = bool(worker.settings.api_keys), worker.settings.page
    document = document_of(apis, model_id=loaded.model_id, has_key=has_key, has_page=has_page)
    return Description(msgspec.json.encode(document), pages_of(document), HEADERS)
