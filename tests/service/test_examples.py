"""Each example of the description is answered by the demo model as described."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.service.contract import Contract
from tests.support import http
from tests.support.cases import for_each
from tests.support.models.adapters import write_lora
from tests.support.models.embedders import Embedder
from tests.support.models.infilling import write_infilling
from tests.support.programs.processes import Server, serving
from worker.api.described import EVENTS, Described
from worker.http.paths import REQUESTS
from worker.service.app import APIS

DESCRIBED = [route for api in APIS for route in api.routes]
EXAMPLES = [
    pytest.param(route, name, id=f"{route.handler.fn.__name__}-{name}")
    for route in DESCRIBED
    for name in route.examples
]
#: (handler, path): all that is asked for without a body and answered with 200 at any time.
PLAIN = [
    (route, path)
    for route in DESCRIBED
    for path in sorted(route.handler.paths)
    if not route.takes
    and route.gives
    and route.handler.status_code == 200
    and not {"request_id", "stream_id"} & set(route.params)  # of what runs
    and route.handler.fn.__name__ != "upload_file"  # its form is no JSON
]


def path_of(route: Described) -> str:
    """The first of its paths."""
    return min(route.handler.paths)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """The demo model with infill, vectors and adapters, in a context as large as the examples
    need."""
    folder = tmp_path_factory.mktemp("demo")
    model = write_infilling(folder)
    write_lora(folder / "sql.gguf", model, 1)
    tales = f"{write_lora(folder / 'tales.gguf', model, 2)}=tales"
    options = ("--ctx-size", "512", "-t", "1", "--pooling", "mean", "--lora", tales)
    options += ("--lora-dir", str(folder), "--state-dir", str(folder / "state"))
    with serving("--model", model, *options) as running:
        yield running


@pytest.fixture(scope="module")
def contract(demo: Server) -> Contract:
    """What this worker says of itself."""
    return Contract(http.get(demo.url + "/openapi.json").json())


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A model with a classifier."""
    path = tmp_path_factory.mktemp("ranker") / "ranker.gguf"
    with serving("--model", Embedder("bert", pooling=4, classifier=1).write(path)) as server:
        yield server


@for_each(("route", "name"), EXAMPLES)
def test_example(
    demo: Server, ranker: Server, contract: Contract, route: Described, name: str
) -> None:
    """It is a body as described, and it is answered in the form that it asks for, without error."""
    body = route.examples[name]
    for path in sorted(route.handler.paths):
        said = contract.document["paths"][path]["post"]["requestBody"]["content"]
        assert said["application/json"]["examples"][name]["value"] == body
        contract.hold(body, said["application/json"]["schema"])
        if "input_file_id" in body:
            body = {**body, "input_file_id": _uploaded(demo)}
        answer = http.post((ranker if path == "/predict" else demo).url + path, json=body)
        assert answer.is_success, answer.text
        contract.check("POST", path, answer)
        assert '"error"' not in answer.text.replace('"error":null', "")


@for_each(("route", "path"), PLAIN)
def test_plain(demo: Server, contract: Contract, route: Described, path: str) -> None:
    """What needs no body answers as described; parts of the path are those of the description."""
    shown = route.openapi_path(path)
    (method,) = {each.lower() for each in route.handler.http_methods} - {"head", "options"}
    asked = shown
    for parameter in contract.document["paths"][shown][method].get("parameters", ()):
        if parameter["in"] == "path":
            asked = asked.replace(f"{{{parameter['name']}}}", _part(demo, parameter))
    answer = http.request(method, demo.url + asked)
    assert answer.is_success, answer.text
    contract.check(method.upper(), shown, answer)


@pytest.mark.parametrize(
    "asked", [{"params": {"stream": "1", "interval": "0.1"}}, {"headers": {"accept": EVENTS}}]
)
def test_endless(demo: Server, contract: Contract, asked: Any) -> None:
    """The view of requests as events, of which the first one is read."""
    with http.stream("GET", demo.url + REQUESTS, **asked) as answer:
        first, _ = itertools.islice(answer.iter_lines(), 2)
    assert first.startswith("data: {")
    whole = httpx.Response(answer.status_code, headers=answer.headers, text=first + "\n\n")
    whole.headers["content-type"] = answer.headers["content-type"]
    contract.check("GET", REQUESTS, whole)


def test_cancel(demo: Server, contract: Contract) -> None:
    """A request that runs is cancelled as described, and its stream's error is as described."""
    path, body = "/v1/completions", {"prompt": "Once", "max_tokens": -1, "ignore_eos": True}
    ids = {"x-request-id": "a/b", "x-correlation-id": "c"}
    asked = {**body, "prompt": [[5], [6], [7], [8]], "stream": True}
    with http.stream("POST", demo.url + path, json=asked, headers=ids) as running:
        name = quote("a/b", safe="")
        answer = http.post(f"{demo.url}{REQUESTS}/{name}/cancel")
        running.read()
    contract.check("POST", REQUESTS + "/{request_id}/cancel", answer)
    assert answer.json() == {"id": "a/b", "cancelled": True, "requests": 1}
    contract.check("POST", path, running)
    assert '"code":"cancelled"},"request_id":"a/b","correlation_id":"c"}' in running.text


def _uploaded(demo: Server) -> str:
    """The id of a file for a batch."""
    files = {"file": ("in.jsonl", b"{}")}
    answer = http.post(demo.url + "/v1/files", data={"purpose": "batch"}, files=files)
    return answer.json()["id"]


def _part(demo: Server, parameter: dict[str, Any]) -> str:
    """A value for a part of a path."""
    if parameter["name"] == "job_id":
        return demo.post({"prompt": "Hello", "max_tokens": 2}, "/v1/jobs").json()["job_id"]
    if parameter["name"] == "slot_id":
        return "0?action=erase"
    if parameter["name"] == "response_id":
        asked = {"input": "Hello", "max_output_tokens": 2}
        return demo.post(asked, "/v1/responses").json()["id"]
    if parameter["name"] == "file_id":
        return _uploaded(demo)
    if parameter["name"] == "batch_id":
        asked = {"input_file_id": _uploaded(demo), "endpoint": "/v1/completions"}
        return demo.post(asked, "/v1/batches").json()["id"]
    return str(parameter["example"])


def test_shutdown(contract: Contract) -> None:
    """A worker of its own leaves as described."""
    with serving("--ctx-size", "512", "-t", "1") as server:
        contract.check("POST", "/shutdown", http.post(server.url + "/shutdown"))
        assert server.wait() == 0


def beyond(schemas: dict[str, Any], name: str, inside: bool = False) -> Iterator[dict[str, Any]]:
    """For each limit of a shape, and of the shapes in it that need nothing, a number beyond it."""
    for field, schema in schemas[name]["properties"].items():
        if "minimum" in schema:
            yield {field: schema["minimum"] - 1}
        if "maximum" in schema:
            yield {field: schema["maximum"] + 1}
        for kind in schema.get("anyOf", ()):
            inner = kind.get("$ref", "").rpartition("/")[2]
            if inner and not inside and "required" not in schemas[inner]:
                yield from ({field: more} for more in beyond(schemas, inner, inside=True))


@pytest.mark.parametrize(
    "route", [r for r in DESCRIBED if r.examples and isinstance(r.takes, type)], ids=path_of
)
def test_limits(demo: Server, contract: Contract, route: Described) -> None:
    """A number beyond its limits is refused in words that name the field."""
    assert route.takes is not None
    path = path_of(route)
    body = next(iter(route.examples.values()))
    for wrong in beyond(contract.document["components"]["schemas"], route.takes.__name__):
        refused = http.post(demo.url + path, json={**body, **wrong})
        assert refused.status_code == 400, (wrong, refused.text)
        (name,) = wrong
        (name,) = wrong[name] if isinstance(wrong[name], dict) else (name,)
        assert name in refused.text
        contract.check("POST", path, refused)
