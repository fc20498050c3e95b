"""A worker as a chat sees it: POST /v1/chat/completions, streamed."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from worker.cli.address import Address
from worker.errors import WorkerError

_TIMEOUT_S = 600.0  # between two events; comments come every few seconds
_Reply = TypeVar("_Reply")


class ChatError(WorkerError, code="CHAT_FAILED"):
    """The worker refused a request, or its answer ended with an error."""


class AnswerPiece(msgspec.Struct, frozen=True):
    """What one event adds to an answer.

    tokens  of the whole answer, in its last piece
    speed   tokens per second, there too
    """

    content: str = ""
    reasoning: str = ""
    tokens: int = 0
    speed: float = 0.0


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Usage(msgspec.Struct):
    completion_tokens: int = 0


class _Timings(msgspec.Struct):
    predicted_n: int = 0
    predicted_per_second: float = 0.0


class _Error(msgspec.Struct):
    message: str


class _Refused(msgspec.Struct):
    error: _Error


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: _Error | None = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def model_name(address: Address) -> str:
    """The first model that the worker serves. Raises ChatError."""
    with connect(address) as connection:
        response = _ask(connection, "GET", "/v1/models", address, None)
        return _decode(response.read(), _Models).data[0].id


def stream(address: Address, messages: Sequence[dict[str, Any]]) -> Generator[AnswerPiece]:
    """The answer's pieces as they come; closing it ends the request. Raises ChatError."""
    body = {"messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    with connect(address) as connection:
        response = _ask(connection, "POST", "/v1/chat/completions", address, body)
        while line := response.readline():
            if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                yield _piece(_decode(line[6:], _Event))


def _piece(event: _Event) -> AnswerPiece:
    if event.error is not None:
        raise ChatError(event.error.message)
    delta = event.choices[0].delta if event.choices else _Delta()
    timings = event.timings or _Timings()
    return AnswerPiece(
        content=delta.content or "",
        reasoning=delta.reasoning_content or delta.reasoning or "",
        tokens=event.usage.completion_tokens if event.usage else timings.predicted_n,
        speed=timings.predicted_per_second,
    )


def connection_to(address: Address, timeout_s: float) -> http.client.HTTPConnection:
    scheme, _, place = address.url.partition("://")
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    return kind(place.partition("/")[0], timeout=timeout_s)


@contextlib.contextmanager
def connect(address: Address, timeout: float = _TIMEOUT_S) -> Generator[http.client.HTTPConnection]:
    """A connection, closed afterwards. Raises ChatError for one that breaks, and if what is decoded
    meanwhile is no worker's."""
    connection = connection_to(address, timeout)
    try:
        yield connection
    except (OSError, http.client.HTTPException) as error:
        raise ChatError(
            f"No worker answers at {address.url}: {error}.",
            hint="Start one with `worker serve`, or leave --url out.",
        ) from None
    except (msgspec.MsgspecError, LookupError):
        raise ChatError(f"{address.url} is not a worker.", hint="Check --url.") from None
    finally:
        connection.close()


def _ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    address: Address,
    body: dict[str, Any] | None,
) -> http.client.HTTPResponse:
    """The response, if it is a 200. Raises ChatError."""
    response = request(connection, method, path, address, body)
    if response.status != http.client.OK:
        raise ChatError(_decode(response.read(), _Refused).error.message)
    return response


def request(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    address: Address,
    body: Any = None,
    more: Mapping[str, str] | None = None,
) -> http.client.HTTPResponse:
    """The response, whatever its status. more: headers"""
    headers = {"Content-Type": "application/json", **(more or {})}
    if address.key is not None:
        headers["Authorization"] = f"Bearer {address.key}"
    prefix = address.url.partition("://")[2].partition("/")[2]
    path = f"/{prefix}{path}" if prefix else path
    connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
    return connection.getresponse()


def _decode(data: bytes, shape: type[_Reply]) -> _Reply:
    return msgspec.json.decode(data, type=shape)
