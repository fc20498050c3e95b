"""What the description says of an answer, to hold the answer against."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
from jsonschema import Draft202012Validator

from worker.api.described import EVENTS, JSON, LINES


class Contract:
    """An OpenAPI document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self._components = _strict(document["components"])

    def check(self, method: str, path: str, answer: httpx.Response) -> None:
        """Hold an answer against what is said of it."""
        responses = self.document["paths"][path][method.lower()]["responses"]
        status = str(answer.status_code)
        if status not in responses and not answer.is_success:
            status = f"{status[0]}XX"
        assert status in responses, (method, path, status, answer.text)
        response = self._found(responses[status])
        media = answer.headers["content-type"].partition(";")[0]
        assert media in response["content"], (method, path, media)
        schema = response["content"][media]["schema"]
        for value in values_of(media, answer.text):
            self.hold(value, schema)
            if media == EVENTS and value["data"] != "[DONE]":
                event = schema.get("anyOf", [schema])[0]
                self.hold(json.loads(value["data"]), event["properties"]["data"]["contentSchema"])

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


def _strict(components: dict[str, Any]) -> dict[str, Any]:
    """Shapes with no other fields than those that are named."""
    components = copy.deepcopy(components)
    for schema in components["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return components
