"""A worker as `worker batch` asks it: one line after the other, again while it has no room."""

from __future__ import annotations

import contextlib
import http.client
import time

import msgspec

from worker.batches.line import METHOD, AnsweredLine, BatchLine, with_response
from worker.cli.address import Address
from worker.cli.chat_client import ChatError, connect, request
from worker.errors import WorkerError

# Statuses that say nothing of the line. Of a worker that is there and has no room, which is waited
# for; of one that loads, of proxies whose worker is gone: until patience ends.
_BUSY = frozenset({408, 429})
_GONE = frozenset({502, 503, 504})
# Seconds for one answer, which waits for its turn and comes whole; and those between two tries.
_ANSWER_S = 86_400.0
_FIRST_WAIT_S, _LAST_WAIT_S, _NAP_S = 0.5, 30.0, 0.1
_FALLBACK_SLOTS = 4


class BatchStoppedError(WorkerError, code="BATCH_STOPPED"):
    """The worker answers nothing any more."""


class _Props(msgspec.Struct):
    total_slots: int = _FALLBACK_SLOTS


class LineAsker:
    """Asks lines from several threads at once.

    headers   beside those of JSON
    patience  seconds in which a worker that is gone may come back
    """

    def __init__(self, address: Address, headers: dict[str, str], patience: float) -> None:
        self._address, self._headers, self._patience = address, headers, patience
        self._open: set[http.client.HTTPConnection] = set()
        self._is_closed = False

    def num_slots(self) -> int:
        """Sequences that the worker decodes at once, or a guess. Raises ChatError."""
        with connect(self._address) as connection:
            response = request(connection, "GET", "/props", self._address, None)
            data = response.read()
        if response.status == http.client.OK:
            with contextlib.suppress(msgspec.MsgspecError):
                return max(1, msgspec.json.decode(data, type=_Props).total_slots)
        return _FALLBACK_SLOTS

    def ask(self, line: BatchLine) -> AnsweredLine:
        """The answer, whatever its status; a refusal that passes is waited for.

        Raises BatchStoppedError if the worker is gone for longer than patience, and after `close`.
        """
        pause, since = _FIRST_WAIT_S, None
        while True:
            try:
                status, request_id, wait, data = self._post(line)
                reason = f"{self._address.url} answers {status} only."
            except ChatError as error:
                status, request_id, wait, data, reason = 0, "", None, b"", error.message
            if status and status not in _BUSY | _GONE:
                return with_response(line.custom_id, status, request_id, data)
            now = time.monotonic()
            since = None if status in _BUSY else since or now
            if self._is_closed or (since is not None and now - since > self._patience):
                raise BatchStoppedError(reason, hint="Give the same command again to go on.")
            self._sleep(pause if wait is None else wait)
            pause = min(2 * pause, _LAST_WAIT_S)

    def _post(self, line: BatchLine) -> tuple[int, str, float | None, bytes]:
        """Status, the request's id, seconds to wait if the worker says some, body."""
        with connect(self._address, _ANSWER_S) as connection:
            self._open.add(connection)
            try:
                body = msgspec.Raw(line.body)
                response = request(connection, METHOD, line.url, self._address, body, self._headers)
                data = response.read()
            finally:
                self._open.discard(connection)
        after = response.headers.get("Retry-After", "")
        wait = float(after) if after.isascii() and after.isdecimal() else None
        return response.status, response.headers.get("X-Request-Id", ""), wait, data

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._is_closed and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _NAP_S))

    def close(self) -> None:
        """End what is being asked."""
        self._is_closed = True
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                if connection.sock is not None:
                    connection.sock.shutdown(2)
