"""What the description says of an answer, to hold the answer against."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
from jsonschema import Draft202012Validator

from worker.api.described import EVENTS, JSON, LINES
from worker.service.app import APIS


def handlers() -> list[Any]:
    """All handlers of the application."""
    return [route.handler for api in APIS for route in api.routes]


#: (method, path as the description shows it, status, code or ""): an error that may be answered.
Refusal = tuple[str, str, int, str]


class Contract:
    """An OpenAPI document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self._components = _strict(document["components"])

    @property
    def operations(self) -> list[tuple[str, str, dict[str, Any]]]:
        """(method, path, operation) of all."""
        return [
            (method.upper(), path, operation)
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
        ]

    def refusals(self) -> set[Refusal]:
        """All that are described."""
        return {
            (method, path, int(status), code)
            for method, path, operation in self.operations
            for status, response in operation["responses"].items()
            if int(status) >= 400
            for code in self._codes(self._found(response))
        }

    def check(self, method: str, path: str, answer: httpx.Response) -> str:
        """Hold an answer against what is said of it; its code, where it is an error."""
        responses = self.document["paths"][path][method.lower()]["responses"]
        status = str(answer.status_code)
        assert status in responses, (method, path, status, answer.text)
        response = self._found(responses[status])
        media = answer.headers["content-type"].partition(";")[0]
        assert media in response["content"], (method, path, media)
        for name in response.get("headers", {}):
            assert name in answer.headers, (method, path, status, name)
        schema = response["content"][media]["schema"]
        for value in values_of(media, answer.text):
            self.hold(value, schema)
            if media == EVENTS and value["data"] != "[DONE]":
                event = schema.get("anyOf", [schema])[0]
                self.hold(json.loads(value["data"]), event["properties"]["data"]["contentSchema"])
        return "" if answer.is_success else _code_of(answer.json())

    def hold(self, value: Any, schema: dict[str, Any]) -> None:
        """Fail where a value is not as the schema says, or has fields that it does not name."""
        whole = {**schema, "components": self._components}
        validator: Any = Draft202012Validator(whole)
        errors = [error.message for error in validator.iter_errors(value)]
        assert not errors, (errors, value)

    def _found(self, response: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in response:
            return self.document["components"]["responses"][response["$ref"].rpartition("/")[2]]
        return response

    def _codes(self, response: dict[str, Any]) -> list[str]:
        ((_, content),) = response["content"].items()
        for schema in content["schema"].get("anyOf", [content["schema"]]):
            if "allOf" in schema:
                told = schema["allOf"][1]["properties"]["error"]["properties"]
                return [str(code) for code in (told.get("code") or told["type"])["enum"]]
        return [""]


def values_of(media: str, text: str) -> Iterator[Any]:
    """What an answer consists of: one value, all events, or one value each line."""
    if media == JSON:
        yield json.loads(text)
    elif media == LINES:
        yield from map(json.loads, text.splitlines())
    elif media == EVENTS:
        for event in text.split("\n\n"):
            fields = [line.split(": ", 1) for line in event.splitlines() if line != ":"]
            if fields:
                yield dict(fields)
    else:
        yield text


def _code_of(body: dict[str, Any]) -> str:
    error: Any = body.get("error", "")  # a bad health is no error
    if isinstance(error, str):
        return ""  # Ollama's are texts
    return str(error["code"] if "code" in error else error["type"])


def _strict(components: dict[str, Any]) -> dict[str, Any]:
    """Shapes with no other fields than those that are named."""
    components = copy.deepcopy(components)
    for schema in components["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return components
