"""Each route refuses in the shape of its API what is wrong, too much or too early."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import re
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.service.contract import Contract
from tests.support import http
from tests.support.models import ggufs
from tests.support.models.infilling import write_infilling
from tests.support.programs.processes import Server, serving, until
from worker.api.anthropic.schemas import MessagesRequest
from worker.api.decisions.systemone_schemas import SystemOneRequest
from worker.api.described import Described
from worker.api.intake.chat.chat_request import ChatRequest
from worker.api.intake.texts import CutFields
from worker.api.jobs.schemas import JobRequest
from worker.api.ollama.schemas import OllamaChatRequest
from worker.api.responses.schemas import ResponseRequest
from worker.errors import WorkerError
from worker.http.connections import GUEST
from worker.http.paths import DECIDING, GENERATING, HEALTH, REQUESTS, WRITING, passes
from worker.lifecycle.state import State
from worker.requests.journal import Journal
from worker.service import app
from worker.service.app import APIS
from worker.service.gate import Gate
from worker.service.openapi import document_of
from worker.settings import Settings

DOCUMENT = document_of(APIS, model_id="demo-5m-f16", has_key=True)
CONTRACT = Contract(json.loads(json.dumps(DOCUMENT)))
ROUTES = [
    (route, path) for api in APIS for route in api.routes for path in sorted(route.handler.paths)
]
LONG: dict[str, Any] = {"max_tokens": 1_900, "ignore_eos": True, "temperature": 0}
STREAM = {**LONG, "prompt": "Hello", "max_tokens": 500, "stream": True}
PARTS = b"[" * 600_000  # more than are read
KEY = "secret"
# What is wrong behind a path.
WRONG = {"mode": "abort", "limit": "0", "interval": "0"}
# Routes that read a body, wait for a place, chat, read a prompt, form an answer, write.
# A form has no fields that a JSON body would break; its own tests do.
TAKE = [(route, path) for route, path in ROUTES if route.takes is not None and not route.is_form]
QUEUE = [(route, path) for route, path in TAKE if path in GENERATING or route.takes is JobRequest]
CHATS = (ChatRequest, MessagesRequest, ResponseRequest, OllamaChatRequest)
CHAT = [(route, path) for route, path in TAKE if route.takes in CHATS]
READ = [each for each in TAKE if each in QUEUE or each in CHAT or each[1] == "/tokenize"]
FORM = [each for each in READ if each in CHAT or each[1] in WRITING or each[0].takes is JobRequest]
VECTORS = GENERATING - WRITING - DECIDING
WRITE = {path: route for route, path in TAKE if path in {*WRITING, "/v1/infer"}}


def method_of(route: Described) -> str:
    """The one that is described."""
    (method,) = set(route.handler.http_methods) - {"HEAD"}
    return str(method)


def wrong_status(route: Described) -> int:
    """Of a body that is wrong."""
    return 422 if route.takes is SystemOneRequest else 400


def refused(route: Described, path: str, answer: httpx.Response, *statuses: int) -> None:
    """It is an error of one of these statuses, in the shape of its API."""
    assert answer.status_code in statuses, (path, answer.status_code, answer.text)
    CONTRACT.check(method_of(route), route.openapi_path(path), answer)


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


def test_the_gate_knows_routes_that_wait() -> None:
    """Each route that hands its request to the engine is one whose full queue the gate tells."""
    wait = [
        path
        for route, path in TAKE
        if re.search(r"preparing\.(run|texts)\(|_decide\(", inspect.getsource(route.handler.fn))
    ]
    assert "/v1/chat/completions" in wait
    assert set(wait) <= GENERATING


def test_locked_or_not_ready() -> None:
    """The gate in each state, without the key, with a wrong one and with the right one."""

    async def passed(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def has_place(_besides: int, _account: str) -> None:
        """There is always one."""

    async def ask_all(state: State, is_guest: bool) -> None:
        engine = SimpleNamespace(check_place=has_place)
        worker: Any = SimpleNamespace(
            state=state, settings=Settings(api_key=KEY), sleeper=None,
            error=WorkerError("It failed."),
            loaded=SimpleNamespace(engine=engine, writes=True),
        )  # fmt: skip
        gate = Gate(worker, Journal("demo"))
        gate.open(passed)
        transport = httpx.ASGITransport(guest_of(gate) if is_guest else gate)
        asking = httpx.AsyncClient(transport=transport, base_url="http://worker")
        for route, path in ROUTES:
            for key in ("", "wrong", KEY):
                is_open = path in HEALTH
                headers = {"x-api-key": key}
                answer = await asking.request(method_of(route), path, headers=headers)
                if key != KEY and not is_open:
                    refused(route, path, answer, 401)
                elif (state is not State.READY and not passes(path, state)) or (
                    is_guest and not is_open
                ):
                    refused(route, path, answer, 503)
                else:
                    assert answer.status_code == 299

    for state in (State.LOADING, State.READY, State.DRAINING, State.FAILED):
        asyncio.run(ask_all(state, is_guest=False))
    asyncio.run(ask_all(State.READY, is_guest=True))


# The handler that breaks takes none of what the routes name.
@pytest.mark.filterwarnings("ignore::litestar.exceptions.LitestarDeprecationWarning")
def test_a_mistake_in_a_handler() -> None:
    """500, in the shape of each API."""

    async def broken() -> None:
        raise LookupError("a mistake")

    async def ask_all() -> None:
        with pytest.MonkeyPatch.context() as patch:
            for route, _ in ROUTES:
                patch.setattr(route.handler, "_fn", broken)
            made = app.create_app(SimpleNamespace(settings=Settings()), Journal("demo"))  # type: ignore[arg-type]
        for route, path in ROUTES:
            refused(route, path, await called(made, method_of(route), path), 500)

    asyncio.run(ask_all())


def test_misused(tmp_path: Path) -> None:
    """Wrong bodies, prompts that are too long, names of nothing, a job that takes too long."""
    options = ("--ctx-size", "512", "--inference-timeout-sec", "0.2")
    with failing(tmp_path, *options, read_seconds=60) as server:
        for route, path in ROUTES:
            shown = route.openapi_path(path)
            for name in route.params:
                shown = shown.replace(f"{{{name}}}", "none")
            if route.takes is not None and not route.is_form:
                answer = http.post(server.url + path, content=b"0")
                refused(route, path, answer, wrong_status(route))
                refused(route, path, http.post(server.url + path, content=PARTS), 413)
                packed = {"content-encoding": "br"}
                answer = http.post(server.url + path, content=b"{}", headers=packed)
                refused(route, path, answer, 415)
            if route.params or not route.gives:
                asked = http.request(method_of(route), server.url + shown)
                refused(route, path, asked, 400, 404, 501)
            if path.startswith("/slots/"):
                asked = server.post({"filename": "a"}, "/slots/0?action=save")
                refused(route, path, asked, 501)
            elsewhere = {"host": "elsewhere.example"}
            asked = http.request(method_of(route), server.url + path, headers=elsewhere)
            refused(route, path, asked, 403)
            if route.asker is not None:
                elsewhere = {"origin": "https://elsewhere.example"}
                asked = http.request(method_of(route), server.url + path, headers=elsewhere)
                refused(route, path, asked, 403)
            for query, wrong in WRONG.items():
                if query in route.queries:
                    asked = http.request(
                        method_of(route), server.url + shown, params={query: wrong}
                    )
                    refused(route, path, asked, 400)
            if path == "/v1/infer":
                refused(route, path, server.post(long_body(route), path), 504)
            if route.takes is ResponseRequest:
                unknown = {**example_of(route), "previous_response_id": "none"}
                refused(route, path, server.post(unknown, path), 404)
        for route, path in QUEUE:
            if path != "/api/embeddings":  # it cuts every text
                answer = http.post(server.url + path, content=lengthened(route))
                refused(route, path, answer, wrong_status(route))
        told_to_leave(server)


def told_to_leave(server: Server) -> None:
    """Requests that came before the worker was told to leave, and whose bodies come after that."""
    with http.stream("POST", server.url + "/v1/completions", json=STREAM) as running:
        assert running.status_code == 200  # and as long as it runs the worker does
        begun = [(route, path, begin(server, path, 500)) for route, path in QUEUE]
        assert server.health()["status"] == "ok"
        assert server.post({}, "/shutdown").status_code == 202
        until(lambda: http.get(server.url + "/version").status_code == 503)
        for route, path, connection in begun:
            connection.send(json.dumps(example_of(route)).encode().ljust(500))
            refused(route, path, end(connection), 503)


def test_a_model_without_a_template(tmp_path: Path) -> None:
    """Nor infill tokens, vectors, scores and adapters."""
    model = ggufs.write_llama(tmp_path / "plain.gguf", chat_template=None)
    with serving("--model", model, "-t", "1") as server:
        for route, path in TAKE:
            is_missing = (route, path) in CHAT or path in VECTORS or path == "/infill"
            if is_missing or path.endswith("load_lora_adapter"):
                refused(route, path, server.post(example_of(route), path), 400, 404, 501)


def test_busy_and_broken(tmp_path: Path) -> None:
    """Batches that fail; all slots taken, jobs in the way of others; an engine that ends."""
    options = ("-np", str(len(WRITE) + 1), "--queue-size", "0")
    with failing(tmp_path, *options, read_seconds=2) as server, ThreadPoolExecutor(32) as pool:

        def ask_all() -> dict[str, Future[httpx.Response]]:
            """A long request for each path, which is its id."""
            return {
                path: pool.submit(
                    http.post, server.url + path, headers={"x-request-id": path},
                    json={**long_body(route), "job_id": "other"},
                )
                for path, route in WRITE.items()
            }  # fmt: skip

        fail(tmp_path, "batch")
        for path, route in WRITE.items():
            refused(route, path, server.post(example_of(route), path), 500)
        fail(tmp_path, "long")
        for route, path in FORM:
            refused(route, path, server.post(example_of(route), path), 429)
        fail(tmp_path, "bodies")
        for route, path in TAKE:
            refused(route, path, server.post(example_of(route), path), 429)
        fail(tmp_path, "tokenizer")
        for route, path in READ:
            answer = http.post(server.url + path, content=lengthened(route))
            refused(route, path, answer, wrong_status(route))
        fail(tmp_path, "")
        server.wait_until(slots_processing=0)
        late = [(route, path, pool.submit(end, begin(server, path, 500))) for route, path in TAKE]
        job = server.post({**LONG, "prompt": "Hello", "job_id": "taken"}, "/v1/jobs").json()
        for route, path in TAKE:
            if route.takes is JobRequest:
                taken = {**example_of(route), "job_id": "taken"}
                refused(route, path, server.post(taken, path), 409)
        running = ask_all()
        server.wait_until(slots_processing=len(WRITE) + 1)
        with http.stream("GET", server.url + job["sse_url"]):
            refused_while_busy(server)
        for route, path, answer in late:
            refused(route, path, answer.result(), 408)
        server.post({"job_id": "other"}, "/cancel")
        refused(WRITE["/v1/infer"], "/v1/infer", running.pop("/v1/infer").result(), 499)
        for path in WRITING & WRITE.keys():
            name = quote(path, safe="")
            assert http.post(f"{server.url}{REQUESTS}/{name}/cancel").status_code == 200
            refused(WRITE[path], path, running.pop(path).result(), 499)
        server.wait_until(slots_processing=0)
        running = ask_all()
        server.wait_until(slots_processing=len(WRITE))
        fail(tmp_path, "engine")
        for path, answer in running.items():
            refused(WRITE[path], path, answer.result(), 500)


def refused_while_busy(server: Server) -> None:
    """No slot is idle, and the job `taken` has a reader."""
    for route, path in ROUTES:
        if "fail_on_no_slot" in route.queries:
            refused(route, path, http.get(server.url + path, params={"fail_on_no_slot": "1"}), 503)
        if "job_id" in route.params:
            name = path.replace("{job_id:str}", "taken")
            refused(route, path, http.get(server.url + name), 409)
    for route, path in QUEUE:
        refused(route, path, server.post(example_of(route), path), 429)


@contextlib.contextmanager
def failing(folder: Path, *options: str, read_seconds: float) -> Generator[Server]:
    """The demo model in a worker that `fail` makes fail."""
    env = {"FAILURE": str(folder / "failure"), "STEP_SECONDS": "0.02"}
    fail(folder, "")
    program = "tests.support.programs.failing"
    model = write_infilling(folder)
    options = (*options, "--receive-timeout", str(read_seconds), "--pooling", "mean")
    options = (*options, "--state-dir", str(folder / "state"))
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
