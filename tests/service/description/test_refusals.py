"""Each error that the description lists is answered, by each path that it stands under."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.service.description.contract import Contract, Refusal, handlers
from tests.support import http
from tests.support.models import ggufs
from tests.support.models.infilling import write_infilling
from tests.support.programs.processes import Server, serving, until
from worker.api.described import (
    BODY,
    CANCELLED,
    CHAT,
    ENGINE,
    FORMED,
    NO_SCORES,
    NO_VECTORS,
    PROMPT,
    QUEUE,
    TOKENIZED,
    Described,
)
from worker.api.intake.texts import CutFields
from worker.api.jobs.schemas import JobRequest
from worker.api.responses.schemas import ResponseRequest
from worker.errors import WorkerError
from worker.http.connections import GUEST
from worker.http.paths import REQUESTS
from worker.lifecycle.state import State
from worker.limits import CONNECTIONS
from worker.requests.journal import Journal
from worker.service import app
from worker.service.app import APIS
from worker.service.description.document import document_of
from worker.service.gate import Gate
from worker.settings import Settings

DOCUMENT = document_of(APIS, model_id="demo-5m-f16", has_key=True, has_page=True)
CONTRACT = Contract(json.loads(json.dumps(DOCUMENT)))
ROUTES = [
    (route, path) for api in APIS for route in api.routes for path in sorted(route.handler.paths)
]
LONG: dict[str, Any] = {"max_tokens": 1_900, "ignore_eos": True, "temperature": 0}
STREAM = {**LONG, "prompt": "Hello", "max_tokens": 500, "stream": True}
PARTS = b"[" * 600_000  # more than are read
KEY = "secret"
Seen = set[Refusal]


def method_of(route: Described) -> str:
    """The one that is described."""
    (method,) = set(route.handler.http_methods) - {"HEAD"}
    return str(method)


def those_that(raise_one_of: Iterable[Exception]) -> list[tuple[Described, str]]:
    """Routes that say they raise one of these."""
    errors = set(map(id, raise_one_of))
    return [(route, path) for route, path in ROUTES if errors & set(map(id, route.errors))]


def noted(seen: Seen, route: Described, path: str, answer: httpx.Response) -> None:
    """Hold the answer against the description and note it."""
    method, shown = method_of(route), route.shown(path)
    code = CONTRACT.check(method, shown, answer)
    seen.add((method, shown, answer.status_code, code))


def example_of(route: Described) -> dict[str, Any]:
    """A body that would be answered."""
    return dict(*list(route.examples.values())[:1])


def long_body(route: Described) -> dict[str, Any]:
    """One whose answer takes long and comes at once."""
    body = example_of(route) | LONG | {"stream": False, "max_output_tokens": 1_900}
    body |= {"n_predict": 1_900} if "n_predict" in body else {}
    return body | {"options": LONG | {"num_predict": 1_900}}


def lengthened(route: Described) -> str:
    """A body with a long text, which is not to be cut."""
    uncut = {"truncation": False} if issubclass(route.takes, CutFields) else {}
    text = json.dumps(example_of(route) | uncut)
    for word in ("What", "Once"):
        text = text.replace(word, f"{word} " * 5_000)
    return text


async def called(application: Any, method: str, path: str, body: bytes = b"{}") -> httpx.Response:
    """What an ASGI application answers."""
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://worker") as asking:
        return await asking.request(method, path, content=body)


def guest_of(application: Any) -> Any:
    """An application for whom there is no room."""

    async def passed_on(scope: Any, receive: Any, send: Any) -> None:
        await application({**scope, GUEST: True}, receive, send)

    return passed_on


# Situations: each notes the errors that it saw.


def locked_or_not_ready(seen: Seen) -> None:
    """The gate in each state, without the key, with a wrong one and with the right one."""

    async def passed(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def has_place(_besides: int) -> None:
        """There is always one."""

    async def ask_all() -> None:
        transports: dict[State | None, httpx.AsyncClient] = {}
        for state in (State.LOADING, State.READY, State.DRAINING, State.FAILED):
            settings = Settings(api_key=KEY)
            engine = SimpleNamespace(check_place=has_place)
            worker: Any = SimpleNamespace(
                state=state, settings=settings, sleeper=None, error=WorkerError("It failed."),
                loaded=SimpleNamespace(engine=engine, check_writes=lambda: None),
            )  # fmt: skip
            gate = Gate(worker, Journal("demo"))
            gate.open(passed)
            transport = httpx.ASGITransport(gate)
            transports[state] = httpx.AsyncClient(transport=transport, base_url="http://worker")
            if state is State.READY:
                transport = httpx.ASGITransport(guest_of(gate))
                transports[None] = httpx.AsyncClient(transport=transport, base_url="http://worker")
        for route, path in ROUTES:
            for state, asking in transports.items():
                for key in ("", "wrong", KEY):
                    headers = {"x-api-key": key}
                    answer = await asking.request(method_of(route), path, headers=headers)
                    if answer.status_code != 299:
                        noted(seen, route, path, answer)
                    else:
                        listed = CONTRACT.refusals()
                        place = (method_of(route), route.shown(path))
                        assert key == KEY or (*place, 401, "INVALID_API_KEY") not in listed
                        code = CONNECTIONS.code if state is None else state
                        assert state is State.READY or (*place, 503, code) not in listed

    asyncio.run(ask_all())


def mistaken(seen: Seen) -> None:
    """Handlers that break."""

    async def broken() -> None:
        raise LookupError("a mistake")

    async def ask_all() -> None:
        with pytest.MonkeyPatch.context() as patch:
            for handler in handlers():
                patch.setattr(handler, "_fn", broken)
            made = app.create_app(SimpleNamespace(settings=Settings()), Journal("demo"))  # type: ignore[arg-type]
        for route, path in ROUTES:
            noted(seen, route, path, await called(made, method_of(route), path))

    asyncio.run(ask_all())


def misused(seen: Seen, folder: Path) -> None:
    """Wrong bodies, prompts that are too long, names of nothing, a job that takes too long."""
    options = ("--ctx-size", "512", "--inference-timeout-sec", "0.2")
    with failing(folder, *options, read_seconds=60) as server:
        for route, path in ROUTES:
            shown = route.shown(path)
            for name in route.params:
                shown = shown.replace(f"{{{name}}}", "none")
            for body in (b"0", PARTS) if route.takes is not None else ():
                noted(seen, route, path, http.post(server.url + path, content=body))
            if route.takes is not None:
                packed = {"content-encoding": "gzip"}
                answer = http.post(server.url + path, content=gzip.compress(b"{}"), headers=packed)
                noted(seen, route, path, answer)
            if route.params or not route.gives:
                noted(seen, route, path, http.request(method_of(route), server.url + shown))
            elsewhere = {"origin": "https://elsewhere.example", "accept": "text/html"}
            if path.startswith("/slots/"):
                asked = server.post({"filename": "a"}, "/slots/0?action=save")
                noted(seen, route, path, asked)
            unknown_host = {"host": "elsewhere.example"}
            asked = http.request(method_of(route), server.url + path, headers=unknown_host)
            noted(seen, route, path, asked)
            if route.asker is not None or path in route.pages:
                asked = http.request(method_of(route), server.url + path, headers=elsewhere)
                noted(seen, route, path, asked)
            if "mode" in route.queries:
                noted(seen, route, path, http.post(server.url + path, params={"mode": "abort"}))
            if "limit" in route.queries:
                noted(seen, route, path, http.get(server.url + shown, params={"limit": "0"}))
            if "interval" in route.queries:
                noted(seen, route, path, http.get(server.url + path, params={"interval": "0"}))
            if path == "/v1/infer":
                noted(seen, route, path, server.post(long_body(route), path))
            if route.takes is ResponseRequest:
                unknown = {**example_of(route), "previous_response_id": "none"}
                noted(seen, route, path, server.post(unknown, path))
            if "response_id" in route.params and route.queries:
                asked = http.get(server.url + shown, params={"stream": "true", "limit": "0"})
                noted(seen, route, path, asked)
        for route, path in those_that(PROMPT):
            noted(seen, route, path, http.post(server.url + path, content=lengthened(route)))
        told_to_leave(seen, server)


def told_to_leave(seen: Seen, server: Server) -> None:
    """Requests that came before the worker was told to leave, and whose bodies come after that."""
    with http.stream("POST", server.url + "/v1/completions", json=STREAM) as running:
        assert running.status_code == 200  # and as long as it runs the worker does
        begun = [(route, path, begin(server, path, 500)) for route, path in those_that(QUEUE)]
        assert server.health()["status"] == "ok"
        assert server.post({}, "/shutdown").status_code == 202
        until(lambda: http.get(server.url + "/version").status_code == 503)
        for route, path, connection in begun:
            connection.send(json.dumps(example_of(route)).encode().ljust(500))
            noted(seen, route, path, end(connection))


def without_a_template(seen: Seen, folder: Path) -> None:
    """A model whose file has no chat template and no infill tokens, and which makes no vectors and
    loads no adapters."""
    model = ggufs.write_llama(folder / "plain.gguf", chat_template=None)
    (infill,) = [(route, path) for route, path in ROUTES if path == "/infill"]
    with serving("--model", model, "-t", "1") as server:
        for route, path in those_that((*CHAT, *NO_VECTORS, *NO_SCORES)):
            noted(seen, route, path, server.post(example_of(route), path))
        noted(seen, *infill, server.post(example_of(infill[0]), infill[1]))
        for route, path in ROUTES:
            if path.endswith("load_lora_adapter"):
                noted(seen, route, path, server.post(example_of(route), path))


def busy_and_broken(seen: Seen, folder: Path) -> None:
    """Batches that fail; all slots taken, jobs in the way of others; an engine that ends."""
    asked = {path: route for route, path in those_that(ENGINE)}
    options = ("-np", str(len(asked) + 1), "--queue-size", "0")
    with failing(folder, *options, read_seconds=2) as server, ThreadPoolExecutor(32) as pool:

        def ask_all() -> dict[str, Future[httpx.Response]]:
            """A long request for each path, which is its id."""
            return {
                path: pool.submit(
                    http.post, server.url + path, headers={"x-request-id": path},
                    json={**long_body(route), "job_id": "other"},
                )
                for path, route in asked.items()
            }  # fmt: skip

        fail(folder, "batch")
        for path, route in asked.items():
            noted(seen, route, path, server.post(example_of(route), path))
        fail(folder, "long")
        for route, path in those_that(FORMED):
            noted(seen, route, path, server.post(example_of(route), path))
        fail(folder, "bodies")
        for route, path in those_that(BODY):
            noted(seen, route, path, server.post(example_of(route), path))
        fail(folder, "tokenizer")
        for route, path in those_that(TOKENIZED):
            noted(seen, route, path, http.post(server.url + path, content=lengthened(route)))
        fail(folder, "")
        server.wait_until(slots_processing=0)
        late = [
            (route, path, pool.submit(end, begin(server, path, 500)))
            for route, path in ROUTES
            if route.takes is not None
        ]
        job = server.post({**LONG, "prompt": "Hello", "job_id": "taken"}, "/v1/jobs").json()
        for route, path in ROUTES:
            if route.takes is JobRequest:
                taken = {**example_of(route), "job_id": "taken"}
                noted(seen, route, path, server.post(taken, path))
        running = ask_all()
        server.wait_until(slots_processing=len(asked) + 1)
        with http.stream("GET", server.url + job["sse_url"]):
            refused_while_busy(seen, server)
        for route, path, answer in late:
            noted(seen, route, path, answer.result())
        server.post({"job_id": "other"}, "/cancel")
        noted(seen, asked["/v1/infer"], "/v1/infer", running.pop("/v1/infer").result())
        for _, path in those_that(CANCELLED):
            name = quote(path, safe="")
            assert http.post(f"{server.url}{REQUESTS}/{name}/cancel").status_code == 200
            noted(seen, asked[path], path, running.pop(path).result())
        server.wait_until(slots_processing=0)
        running = ask_all()
        server.wait_until(slots_processing=len(asked))
        fail(folder, "engine")
        for path, answer in running.items():
            noted(seen, asked[path], path, answer.result())


def refused_while_busy(seen: Seen, server: Server) -> None:
    """No slot is idle, and the job `taken` has a reader."""
    for route, path in ROUTES:
        if "fail_on_no_slot" in route.queries:
            noted(seen, route, path, http.get(server.url + path, params={"fail_on_no_slot": "1"}))
        if "job_id" in route.params:
            name = path.replace("{job_id:str}", "taken")
            noted(seen, route, path, http.get(server.url + name))
    for route, path in those_that(QUEUE):
        noted(seen, route, path, server.post(example_of(route), path))


@contextlib.contextmanager
def failing(folder: Path, *options: str, read_seconds: float) -> Generator[Server]:
    """The demo model in a worker that `fail` makes fail."""
    env = {"FAILURE": str(folder / "failure"), "STEP_SECONDS": "0.02"}
    fail(folder, "")
    program = "tests.support.programs.failing"
    model = write_infilling(folder)
    options = (*options, "--receive-timeout", str(read_seconds), "--pooling", "mean")
    with serving("--model", model, "-t", "1", *options, env=env, module=program) as server:
        yield server


def fail(folder: Path, how: str) -> None:
    """From the next step on."""
    (folder / "failure").write_text(how)


def begin(server: Server, path: str, size: int) -> HTTPConnection:
    """A request without its body, once the worker has seen it.

    Of many that a busy worker sees in one turn, those beyond its places are refused.
    """
    connection = HTTPConnection(server.url.removeprefix("http://"), timeout=http.TIMEOUT_S)
    connection.putrequest("POST", path)
    connection.putheader("Content-Length", str(size))
    connection.endheaders()
    server.health()
    return connection


def end(connection: HTTPConnection) -> httpx.Response:
    """What is answered to it."""
    with contextlib.closing(connection):
        answer = connection.getresponse()
        return httpx.Response(answer.status, headers=answer.getheaders(), content=answer.read())


# The handler that breaks takes none of what the routes name.
@pytest.mark.filterwarnings("ignore::litestar.exceptions.LitestarDeprecationWarning")
def test_each_error_is_answered(tmp_path: Path) -> None:
    """What is described is answered somewhere here; `noted` fails where more is."""
    seen: Seen = set()
    locked_or_not_ready(seen)
    mistaken(seen)
    misused(seen, tmp_path)
    without_a_template(seen, tmp_path)
    busy_and_broken(seen, tmp_path)
    assert CONTRACT.refusals() - seen == set()
