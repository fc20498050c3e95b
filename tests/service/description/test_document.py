"""The description is OpenAPI, whole, and made of what checks requests."""

from __future__ import annotations

import base64
import hashlib
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
from worker.service.description.document import document_of
from worker.service.description.page import HEADERS, pages_of

DESCRIBED = [route for api in APIS for route in api.routes]
DOCUMENT: dict[str, Any] = json.loads(
    json.dumps(document_of(APIS, model_id="org/tiny", has_key=True, has_page=True))
)
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
# What Litestar gives to a handler, or our own dependencies; anything else is asked of the client.
OWN = {
    "request", "worker", "loaded", "facts", "chat", "jobs", "journal", "lookout", "window",
    "description", "preparing", "stored",
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
            methods = {method.upper() for method in DOCUMENT["paths"][route.shown(path)]}
            assert methods >= set(route.handler.http_methods) - {"HEAD"}


def test_names_are_unique() -> None:
    """Programs that are made from the document call each operation by a name of its own."""
    names = [op["operationId"] for path in DOCUMENT["paths"].values() for op in path.values()]
    assert len(names) == len(set(names))


@for_each("route", DESCRIBED)
def test_a_route_says_what_is_asked(route: Described) -> None:
    """A body has examples, and each parameter of the path or behind it is described."""
    assert bool(route.takes) == bool(route.examples)
    for path in route.handler.paths:
        assert set(re.findall(r"{(\w+)}", route.shown(path))) == set(route.params)
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
    open_to_all = document_of(APIS, model_id="org/tiny", has_key=False, has_page=True)
    assert {} in open_to_all["security"]
    assert DOCUMENT["paths"]["/health"]["get"]["security"] == []
    assert "401" not in DOCUMENT["paths"]["/health"]["get"]["responses"]
    assert "401" in DOCUMENT["paths"]["/docs"]["get"]["responses"]


def test_the_page_for_browsers() -> None:
    """It is at / alone, and not where it is switched off."""

    def of(has_page: bool, path: str) -> dict[str, Any]:
        made = document_of(APIS, model_id="org/tiny", has_key=True, has_page=has_page)
        return made["paths"][path]["get"]["responses"]

    assert set(of(True, "/")["200"]["content"]) == {"application/json", "text/html"}
    assert set(of(False, "/")["200"]["content"]) == {"application/json"}
    assert of(True, "/")["403"] != of(False, "/")["403"]
    assert of(True, "/health") == of(False, "/health") == of(False, "/")


def test_the_page_is_whole() -> None:
    """Its parts name each path and shape; each link leads to a place there or to a part."""
    pages = pages_of(DOCUMENT)
    shown: set[str] = set()
    for path in DOCUMENT["paths"]:
        assert f" {path}</code>" in pages[""], path
    for name, page in pages.items():
        places = set(re.findall(r' id="([^"]+)"', page))
        assert set(re.findall(r'href="#([^"]+)"', page)) <= places
        assert set(re.findall(r'href="\?api=([^"]+)"', page)) == set(pages) - {""}
        assert len(page) < 200_000, name
        shown |= places
    assert shown >= set(SCHEMAS)
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            assert f" {path}</code>" in pages[operation["tags"][0]], path


def test_the_page_needs_nothing() -> None:
    """No script, nothing from elsewhere; its policy allows just its own style."""
    page = "".join(pages_of(DOCUMENT).values())
    assert not re.search(r"<(script|img|iframe|link|object|form)\b|https?:|@import|url\(", page)
    style = page.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = HEADERS["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-" + digest)


def test_texts_are_escaped() -> None:
    """What a text holds is text in the page."""
    hostile = document_of(APIS, model_id="<script>", has_key=False, has_page=True)
    assert "<script>" not in "".join(pages_of(hostile).values())
