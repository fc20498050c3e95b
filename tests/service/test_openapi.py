"""The description is OpenAPI, whole, and made of what checks requests."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.support.cases import for_each
from worker.api.described import Described
from worker.api.intake.sampling import FIELD_LIMITS
from worker.api.jobs.schemas import JOB_LIMITS, JobRequest
from worker.service.app import APIS
from worker.service.openapi import document_of

DESCRIBED = [route for api in APIS for route in api.routes]
DOCUMENT: dict[str, Any] = json.loads(
    json.dumps(document_of(APIS, model_id="org/tiny", has_key=True))
)
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
# What Litestar gives to a handler, or our own dependencies; anything else is asked of the client.
OWN = {
    "request", "worker", "loaded", "facts", "chat", "jobs", "journal", "lookout", "window",
    "description", "preparing", "stored", "asking", "recorder", "streams", "desk",
    "native",
}  # fmt: skip


def name_of(route: Described) -> str:
    """Of a test."""
    return str(route.handler.fn.__name__)


def test_it_is_openapi() -> None:
    """A validator of the standard finds nothing wrong."""
    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_no_route_is_missing() -> None:
    """Each of a handler's paths and methods stands in the document."""
    for route in DESCRIBED:
        for path in route.handler.paths:
            methods = {method.upper() for method in DOCUMENT["paths"][route.openapi_path(path)]}
            assert methods >= set(route.handler.http_methods) - {"HEAD"}


def test_names_are_unique() -> None:
    """Programs that are made from the document call each operation by a name of its own."""
    names = [op["operationId"] for path in DOCUMENT["paths"].values() for op in path.values()]
    assert len(names) == len(set(names))


@for_each("route", DESCRIBED)
def test_a_route_says_what_is_asked(route: Described) -> None:
    """A body of JSON has examples, and each parameter of the path or behind it is described."""
    assert bool(route.takes) == (bool(route.examples) or route.is_form)
    for path in route.handler.paths:
        assert set(re.findall(r"{(\w+)}", route.openapi_path(path))) == set(route.params)
    asked = set(route.handler.parsed_fn_signature.parameters) - OWN
    assert asked == set(route.params) | set(route.queries)


@pytest.mark.parametrize(
    "struct", dict.fromkeys(route.takes for route in DESCRIBED if isinstance(route.takes, type))
)
def test_each_field_says_what_it_does(struct: type) -> None:
    """Each field of a body has a text, which is that of the struct's own docstring."""
    fields = SCHEMAS[struct.__name__]["properties"]
    silent = [name for name, field in fields.items() if not field.get("description")]
    assert silent == [] or len(fields) == 1


def test_limits_are_those_that_check() -> None:
    """The numbers are the constants that requests are held against."""
    sampled = SCHEMAS["CompletionRequest"]["properties"]
    for name, (low, high) in FIELD_LIMITS.items():
        assert (sampled[name].get("minimum"), sampled[name].get("maximum")) == (low, high)
    for name, (low, high) in JOB_LIMITS.items():
        field = SCHEMAS[JobRequest.__name__]["properties"][name]
        assert (field["minimum"], field["maximum"]) == (low, high)


def test_the_key() -> None:
    """It is asked for where the worker has one, but not by health."""
    assert {} not in DOCUMENT["security"]
    open_to_all = document_of(APIS, model_id="org/tiny", has_key=False)
    assert {} in open_to_all["security"]
    assert DOCUMENT["paths"]["/health"]["get"]["security"] == []
    assert "security" not in DOCUMENT["paths"]["/v1/models"]["get"]


def test_errors_have_the_shape_of_their_api() -> None:
    """One response for each shape, which all routes of its paths refer to."""
    for path, shape in {
        "/v1/chat/completions": "ErrorReply", "/v1/messages": "AnthropicErrorReply",
        "/api/chat": "OllamaErrorReply", "/embed": "TeiErrorReply", "/v1/jobs": "ErrorReply",
    }.items():  # fmt: skip
        answers = DOCUMENT["paths"][path]["post"]["responses"]
        assert set(answers) == {"200", "4XX", "5XX"}
        for status in ("4XX", "5XX"):
            assert answers[status] == {"$ref": f"#/components/responses/{shape}"}
            content = DOCUMENT["components"]["responses"][shape]["content"]["application/json"]
            assert content["schema"] == {"$ref": f"#/components/schemas/{shape}"}
