"""Good clients, bad ones, and such as leave: each does one thing with a worker, and tells how."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from checks.soak.questions import Question, Questions
from checks.soak.wire import Wire, WireAnswer, WireError, encoded, request_bytes
from tests.service.bodies import BAD_BODIES, BAD_FIELDS

LARGE = 50_000  # bytes of a bad body that is sent as often as others
WATCH_S = 4.0
LOOKS = ("/metrics", "/health", "/v1/models", "/info", "/props", "/slots", "/version", "/",
         "/v1/requests", "/openapi.json", "/tokenizer_info", "/api/tags")  # fmt: skip
POSTS = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat",
         "/api/generate", "/execute", "/v1/jobs", "/v1/infer", "/tokenize", "/detokenize",
         "/apply-template", "/cancel", "/infill")  # fmt: skip
BAD_HTTP = (
    b"GARBAGE\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"POST /execute HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"POST /tokenize HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabc",
)
# The last line of a whole stream, by path.
_LAST: dict[str, tuple[bytes, ...]] = {
    "/v1/completions": (b"[DONE]",),
    "/v1/chat/completions": (b"[DONE]",),
    "/v1/responses": (b'"response.completed"', b'"response.incomplete"'),
    "/v1/messages": (b'"message_stop"',),
    "/api/chat": (b'"done":true',),
    "/api/generate": (b'"done":true',),
    "/execute": (b'"type":"end"',),
    "/v1/infer": (b"",),
}


class WrongError(Exception):
    """The worker did what it must not; the text is what is counted."""


class Clients:
    """What a client can do; `do` is one of `KINDS`. They raise WrongError, WireError, OSError."""

    def __init__(self, host: str, port: int, draw: random.Random) -> None:
        self._address = host, port
        self._draw = draw
        self._questions = Questions(draw)
        self._kept: list[Wire] = []  # connections that are used again
        self.resting = asyncio.Event()  # who watches leaves

    async def do(self, kind: str) -> str:
        """Do it; what came of it, such as "good 200"."""
        return await KINDS[kind][1](self)

    def close(self) -> None:
        """No connection stays."""
        while self._kept:
            self._kept.pop().close()

    async def good(self) -> str:
        """Ask, and read all of the answer."""
        question = self._questions.any()
        answer = await self._ask("POST", question.path, question.body)
        return _checked(question, answer)

    async def comes_back(self) -> str:
        """The next turn of a conversation."""
        conversation = self._questions.turn()
        question = self._questions.chat(conversation)
        answer = await self._ask("POST", question.path, {**question.body, "stream": False})
        if answer.status == 200:
            said = answer.json()["choices"][0]["message"]["content"]
            self._questions.came(conversation, said)
        return _checked(Question(question.path, question.body), answer)

    async def looks(self) -> str:
        """What a page, a router or a scraper asks, and tokens."""
        if self._draw.random() < 0.6:
            answer = await self._ask("GET", self._draw.choice(LOOKS), Accept="*/*")
        else:
            text = self._questions.text(self._draw.randint(1, 60))
            path, body = self._draw.choice((
                ("/tokenize", {"content": text}),
                ("/detokenize", {"tokens": [self._draw.randrange(2000) for _ in range(20)]}),
                ("/apply-template", {"messages": [{"role": "user", "content": text}]}),
                ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": text}]}),
            ))  # fmt: skip
            answer = await self._ask("POST", path, body)
        return _expect("looks", answer, 200)

    async def watches(self) -> str:
        """The events of /v1/requests, for a while."""
        wire, count = Wire(*self._address), 0
        try:
            await wire.send(request_bytes("GET", "/v1/requests?stream=true&interval=0.2"))
            _, head = await wire.head()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_S):
                    async for _ in wire.parts(head):
                        count += 1
                        if self.resting.is_set():
                            break
        finally:
            wire.close()
        if not count:
            raise WrongError("no event of /v1/requests")
        return "watches"

    async def job(self) -> str:
        """A job that another request reads, that is cancelled, or that nobody reads."""
        name = "j" + uuid.uuid4().hex
        body = {"job_id": name, "prompt": self._questions.text(8),
                "max_tokens": self._draw.randint(1, 30)}  # fmt: skip
        answer = await self._ask("POST", "/v1/jobs", body)
        if answer.status != 200:
            return _expect("job", answer, 429, 503)
        fate = self._draw.choices(("read", "cancelled", "unread"), (7, 2, 1))[0]
        if fate == "cancelled":
            _expect("cancel", await self._ask("POST", "/cancel", {"job_id": name}), 202)
        if fate != "unread":
            answer = await self._ask("GET", f"/v1/jobs/{name}/stream")
            if answer.status == 200 and not answer.body.rstrip().endswith(b"[DONE]"):
                raise WrongError("a job's stream without its end")
        return f"job {fate}"

    async def cancelled(self) -> str:
        """A request that another one ends."""
        name = "r" + uuid.uuid4().hex
        body = {"prompt": self._questions.text(5), "max_tokens": 400, "ignore_eos": True}
        asked = asyncio.ensure_future(
            Wire(*self._address).ask("POST", "/v1/completions", body, X_Request_Id=name)
        )
        await asyncio.sleep(self._draw.uniform(0.0, 0.2))
        answer = await self._ask("POST", f"/v1/requests/{name}/cancel")
        _expect("cancel", answer, 200, 404)
        return _expect("cancelled", await asked, 200, 499, 429, 503)

    async def wrong(self) -> str:
        """A body that is no JSON, a field that is no good, a path that there is not."""
        draw = self._draw
        roll = draw.random()
        if roll < 0.35:
            path, data = draw.choice(POSTS), draw.choice(list(BAD_BODIES.values()))
            return self._bad(await self._ask("POST", path, data))
        if roll < 0.8:
            name, value = draw.choice(BAD_FIELDS)
            data = encoded({"prompt": "Hello", "max_tokens": 4, name: value})
            if len(data) > LARGE and draw.random() < 0.8:
                return "bad skipped"
            path = draw.choices(("/v1/completions", draw.choice(POSTS)), (3, 1))[0]
            return self._bad(await self._ask("POST", path, data))
        place = draw.choice((f"/nope/{uuid.uuid4().hex}", "/v1/models/" + uuid.uuid4().hex,
                             "/v1/jobs/" + uuid.uuid4().hex + "/stream"))  # fmt: skip
        method = draw.choice(("GET", "DELETE", "PUT", "M" + uuid.uuid4().hex[:6].upper()))
        return self._bad(await self._ask(method, place, X_Request_Id=uuid.uuid4().hex))

    async def not_http(self) -> str:
        """Bytes that are no HTTP."""
        wire = Wire(*self._address)
        try:
            await wire.send(self._draw.choice(BAD_HTTP))
            answer = await wire.rest()
        except OSError:
            answer = b""
        finally:
            wire.close()
        if answer and not answer.startswith(b"HTTP/1.1 4"):
            raise WrongError(f"no HTTP was answered with {answer[:20]!r}")
        return "bad http"

    async def leaves(self) -> str:
        """In the head, in the body, before the answer, in it; politely or not."""
        draw, wire = self._draw, Wire(*self._address)
        question = self._questions.any()
        data = request_bytes("POST", question.path, encoded(question.body))
        where = draw.choice(("head", "body", "silence", "answer", "answer", "slowly"))
        head = data.index(b"\r\n\r\n") + 4
        try:
            if where == "head":
                await wire.send(data[: draw.randrange(head)] or b"P")
                await asyncio.sleep(draw.uniform(0, 0.1))
            elif where == "body":
                await wire.send(data[: draw.randrange(head, len(data))])
                await asyncio.sleep(draw.uniform(0, 0.1))
            else:
                await wire.send(data)
                await self._reads_some(wire, where)
        finally:
            wire.close(at_once=draw.random() < 0.5)
        return f"left in {where}"

    async def _reads_some(self, wire: Wire, where: str) -> None:
        draw = self._draw
        if where == "silence":
            await asyncio.sleep(draw.uniform(0, 0.05))
            return
        _, head = await wire.head()
        count = draw.randint(0, 12)
        async for _ in wire.parts(head):
            if where == "slowly":
                await asyncio.sleep(draw.uniform(0, 0.3))
            count -= 1
            if count < 0 or self.resting.is_set():
                break

    async def _ask(self, method: str, path: str, body: object = None, **headers: str) -> WireAnswer:
        """On a connection that was used before, or on a new one."""
        used = bool(self._kept) and self._draw.random() < 0.8
        wire = self._kept.pop() if used else Wire(*self._address)
        try:
            try:
                answer = await wire.ask(method, path, body, **headers)
            except (WireError, ConnectionError):
                if not used:
                    raise
                wire.close()  # the worker closed it while it rested
                answer = await wire.ask(method, path, body, **headers)
        except BaseException:
            wire.close()
            raise
        if self._draw.random() < 0.8 and not self.resting.is_set():
            self._kept.append(wire)
        else:
            wire.close()
        return answer

    def _bad(self, answer: WireAnswer) -> str:
        """No 5xx, but 501 for what a model cannot, and 503 and 429 where all places are taken."""
        if answer.status >= 500 and answer.status not in (501, 503):
            raise WrongError(f"status {answer.status} for a bad request: {answer.body[:200]!r}")
        return f"bad {answer.status}"


def _expect(what: str, answer: WireAnswer, *statuses: int) -> str:
    if answer.status not in statuses:
        raise WrongError(f"{what}: status {answer.status}: {answer.body[:200]!r}")
    return f"{what} {answer.status}"


def _checked(question: Question, answer: WireAnswer) -> str:
    """Whole answers have an end; 429 and 503: all places are taken, 400: it does not fit."""
    name = question.path.removeprefix("/v1")
    if answer.status != 200:
        return "good " + _expect(name, answer, 400, 429, 503)
    if question.streams:
        last: Any = answer.lines[-1] if answer.lines else b""
        if not any(word in last for word in _LAST[question.path]):
            raise WrongError(f"{name}: a stream that ends with {last[:200]!r}")
    else:
        answer.json()
    return f"good {name} 200"


# kind -> (how often, who does it)
KINDS: dict[str, tuple[int, Callable[[Clients], Awaitable[str]]]] = {
    "good": (34, Clients.good),
    "comes back": (16, Clients.comes_back),
    "leaves": (20, Clients.leaves),
    "wrong": (14, Clients.wrong),
    "not http": (3, Clients.not_http),
    "looks": (6, Clients.looks),
    "job": (4, Clients.job),
    "cancelled": (2, Clients.cancelled),
    "watches": (1, Clients.watches),
}
