"""Answers of routes, good and bad, as OpenAPI's responses."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec

from worker.api.common.described import EVENTS, HTML, JSON, LINES, Described
from worker.api.common.errors import reply_of
from worker.api.common.refusals import BROKEN, before
from worker.api.common.shapes import AnthropicErrorReply, shaped
from worker.http.replies import ErrorReply
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

    def of(self, route: Described, path: str) -> dict[str, Any]:
        """Status -> response, or where it is."""
        found: dict[str, Any] = {}
        if route.gives:
            found[str(route.handler.status_code)] = self._good(route, path)
        for status, refused in sorted(_refused(route, path).items()):
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


def _refused(route: Described, path: str) -> dict[int, _Refused]:
    """Status -> errors, as the code that answers them makes them."""
    found: dict[int, _Refused] = {}
    page = route.pages.get(path, ())
    errors: list[tuple[Exception, Any]] = [(error, reply_of) for error in before(path)]
    errors += [(error, route.reply_of) for error in (*route.refuses, *page, BROKEN)]
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
