"""The outermost layer: request ids, HEAD for every GET, the page for browsers, 401 without the key,
503 until ready and while draining, 429 where no place is left, 403 for a host that is not known,
and which answers pages of other origins may read. It is there before the application."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

import msgspec

from worker import log
from worker.account import account_for
from worker.api.answer.shapes import error_body
from worker.api.page import page
from worker.errors import RequestError, UnavailableError, WorkerError
from worker.http import paths
from worker.http.connections import ENTER, GUEST, WIRE
from worker.http.headers import Auth, Cors, ids_of, user_in
from worker.http.hosts import Hosts
from worker.http.replies import HeaderFields, WholeAnswer, reply_of_ours, send_whole
from worker.lifecycle.state import State
from worker.lifecycle.worker import Worker
from worker.limits import CONNECTIONS
from worker.requests.journal import Journal
from worker.requests.record import RequestRecord

# In the scope of a request that was looked at.
_ENTRANCE = "worker.entrance"


class _Entrance(NamedTuple):
    """fields: of the answer, whoever gives it"""

    record: RequestRecord
    fields: HeaderFields


class Gate:
    """Wraps the application, so that paths it does not know answer 503 too while loading.

    What may pass already waits until the application is there.
    """

    def __init__(self, worker: Worker, journal: Journal) -> None:
        """journal: gets a record of each request"""
        self._app: Any = None
        self._opened = asyncio.Event()
        self._worker = worker
        self._journal = journal
        given = worker.settings
        self.auth = Auth(given.api_key, given.api_key_file, trusts=given.trust_account)
        settings = worker.settings
        self._fair_by = settings.fair_by
        self._cors = Cors(settings.cors)
        own = ",".join(filter(None, (settings.host, settings.public_host)))
        self._hosts = Hosts(settings.allowed_hosts, own, has_key=bool(settings.api_keys))
        self._has_page = worker.settings.page
        self._prefix = worker.settings.api_prefix
        self._num_entering = 0
        self._turn = asyncio.Lock()

    def open(self, app: Any) -> None:
        """Pass requests on to `app` from now on."""
        self._app = app
        self._opened.set()

    def at_once(self, scope: Any) -> WholeAnswer | None:
        """The answer to what must not reach the application; None: to be called with this scope.

        That takes no task and no body: where hundreds come at the same moment, those who are
        refused hear it before work begins for the others. Until then their places count as taken.
        """
        path: str = scope["path"]
        if self._prefix and f"{path}/".startswith(f"{self._prefix}/"):
            path = path.removeprefix(self._prefix) or paths.PAGE
            scope["raw_path"] = scope["raw_path"].removeprefix(self._prefix.encode())
        path = scope["path"] = paths.full(path)
        headers = scope["headers"]
        ids = ids_of(headers)
        request_id, correlation_id = ids["x-request-id"], ids.get("x-correlation-id")
        log.bind_request(**{name.replace("-", "_"): value for name, value in ids.items()})
        record = self._journal.open(request_id, correlation_id, scope["method"], path, headers)
        fields = [(name.encode(), value.encode("latin-1")) for name, value in ids.items()]
        if names := paths.id_headers(path):
            fields += [(name, request_id.encode("latin-1")) for name in names]
        if self._cors.has_origins:
            fields += self._cors.fields(scope)
        entrance = scope[_ENTRANCE] = _Entrance(record, fields)
        answer = self._answer(scope, entrance)
        if answer is not None:
            record.is_early = True
            record.on_answer(answer.status)
            scope.pop(WIRE, None)  # it holds this scope
        elif _is_work(scope):
            self._num_entering += 1
        return answer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass on what must not be answered at once."""
        if (wire := scope.pop(WIRE, None)) is not None:  # it holds this scope, but not the copy
            scope = {**scope, WIRE: wire}
        if _ENTRANCE not in scope and (answer := self.at_once(scope)) is not None:
            await send_whole(send, answer)
            return
        entrance: _Entrance = scope[_ENTRANCE]
        record, fields = entrance
        # A job can be read once: asking for its headers must not be that.
        head = scope["method"] == "HEAD" and not scope["path"].endswith(paths.JOB_STREAM)
        if head:
            scope = {**scope, "method": "GET"}
        if scope["path"].startswith(paths.ONE_REQUEST):  # an id may hold a slash
            scope = {**scope, "path": scope["raw_path"].decode("latin-1")}
        status: int | None = None
        has_ended = has_come = False
        is_entering, sleeper = _is_work(scope), self._worker.sleeper

        async def enter() -> None:
            """Wait for the model, with its place; who may not ask gets not as far as here."""
            nonlocal has_come, is_entering
            if sleeper is not None:
                await sleeper.come()
                has_come = True
            if is_entering:
                is_entering = False
                self._num_entering -= 1

        async def send_with_ids(message: Any) -> None:
            nonlocal status, has_ended
            if has_ended:
                return
            if message["type"] == "http.response.start":
                status = message["status"]
                unknown = json.dumps(record.unknown).encode()
                told = [(b"x-unknown-fields", unknown)] if record.unknown else []
                told += [] if record.quota is None else record.quota.fields()
                message = {**message, "headers": [*message["headers"], *fields, *told]}
            elif head:  # with its first part all is said, also of events that would not end
                message = {"type": "http.response.body", "body": b"", "more_body": False}
                has_ended = True
            await send(message)

        try:
            if is_entering and self._num_entering > 1:
                # One begins in each turn of the event loop: who comes meanwhile does not wait long.
                async with self._turn:
                    await asyncio.sleep(0)
            await self._opened.wait()
            scope[ENTER] = enter
            await self._app(scope, receive, send_with_ids)
        except asyncio.CancelledError:  # the process ends before this answer is there
            if status is None:
                error = UnavailableError("The worker stopped.", code="draining")
                answer = _refusal_of(scope, entrance, error)
                status = answer.status
                await send_whole(send, answer)
        finally:
            self._num_entering -= is_entering
            if has_come and sleeper is not None:
                sleeper.go()
            if "path_template" in scope:  # Litestar has found a route
                record.pattern = f"{scope['method']} {scope['path_template']}"
            record.on_answer(status)

    def _user(self, scope: Any) -> str | None:
        """Who shares, as far as that is known before the body is."""
        if self._fair_by == "user":
            return user_in(scope["headers"])
        return scope["client"][0] if scope["client"] else ""  # sockets have no address

    def _answer(self, scope: Any, entrance: _Entrance) -> WholeAnswer | None:
        preflight = self._cors.preflight(scope) if scope["method"] == "OPTIONS" else None
        if preflight is not None:
            return WholeAnswer(200, [(b"content-length", b"0"), *preflight, *entrance.fields], b"")
        is_page = self._has_page and scope["path"] == paths.PAGE and page.is_wanted(scope)
        error = self._hosts.refusal_of(scope["headers"]) or (
            page.refusal_of(scope) if is_page else self._refusal(scope, entrance.record)
        )
        if error is not None:
            return _refusal_of(scope, entrance, error)
        if is_page:
            whole = page.answer()
            return whole._replace(fields=[*whole.fields, *entrance.fields])
        return None

    def _refusal(self, scope: Any, record: RequestRecord) -> WorkerError | None:
        """Why this cannot be answered now, or None."""
        state, path = self._worker.state, scope["path"]
        if self.auth.num_keys:  # else all are nobody's
            try:
                record.account = self.auth.check(path, scope["headers"])
                record.owner = self.auth.owner(scope["headers"], record.account)
            except RequestError as error:
                return error
            record.quota = self._journal.quotas.of(record.account)
        if self._fair_by != "none" and record.account.can_split:
            user = self._user(scope)
            record.account = record.account if user is None else account_for(user)
        if GUEST in scope and path not in paths.HEALTH:
            return UnavailableError(
                "There are too many connections.", hint="Try again.", code=CONNECTIONS.code
            )
        if state is State.READY and _is_work(scope):
            try:
                loaded = self._worker.loaded
                if not loaded.writes and (path in paths.WRITING or path in paths.DECIDING):
                    loaded.check_writes()
                loaded.engine.check_place(self._num_entering, record.account)
            except RequestError as error:
                return error
        if state is State.READY or paths.passes(path, state):
            return None
        if state is State.LOADING:
            return UnavailableError("Loading model", code="loading")
        if state is State.FAILED:
            return UnavailableError(f"The worker failed: {self._worker.error}", code="failed")
        return UnavailableError("The worker is shutting down.", code="draining")


def _is_work(scope: Any) -> bool:
    return scope["method"] == "POST" and scope["path"] in paths.GENERATING


def _refusal_of(scope: Any, entrance: _Entrance, error: WorkerError) -> WholeAnswer:
    if _is_work(scope):
        entrance.record.pattern = f"POST {scope['path']}"
    entrance.record.on_failure(error)
    status, reply, headers = reply_of_ours(error)
    body = msgspec.json.encode(error_body(scope["path"], status, reply))
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    fields += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    fields += [] if entrance.record.quota is None else entrance.record.quota.fields()
    return WholeAnswer(status, [*fields, *entrance.fields], body)
