"""The reference of the API for people: Swagger UI, served by the worker alone."""

from __future__ import annotations

import re
from collections.abc import Generator

import pytest

from tests.support import http
from tests.support.programs.processes import Server, serving
from worker.api.info import reference

FILES_IN_ORDER = ("swagger-ui.css", "swagger-ui.js", "start.js")


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    with serving() as server:
        yield server


def test_the_reference_brings_all_that_it_names(server: Server) -> None:
    """The page, its style and its scripts come from the worker, and the policy allows no others."""
    page = http.get(server.url + "/docs")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "connect-src 'self'" in page.headers["content-security-policy"]
    named = re.findall(r'(?:href|src)="([^"]+)"', page.text)
    local = [address for address in named if not address.startswith("data:")]
    assert local == ["/openapi.json", *(f"/docs/{name}" for name in FILES_IN_ORDER)]
    for address in local[1:]:
        answer = http.get(server.url + address)
        assert answer.status_code == 200, address
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert len(answer.content) > 100
    assert '"/openapi.json"' in http.get(server.url + "/docs/start.js").text
    assert http.get(server.url + "/openapi.json").status_code == 200


def test_other_files_are_not_there(server: Server) -> None:
    for name in ("marked.js", "..%2freference.py", "swagger-ui.LICENSE"):
        assert name not in reference.FILES
        assert http.get(f"{server.url}/docs/{name}").status_code == 404
