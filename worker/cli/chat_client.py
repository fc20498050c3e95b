"""A worker as a chat sees it: POST /v1/chat/completions, streamed."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from worker.cli.top.address import Address
from worker.errors import WorkerError

_TIMEOUT_S = 600.0  # between two events; comments come every few seconds


class ChatError(WorkerError, code="CHAT_FAILED"):
    """The worker refused a request, or its answer ended with an error."""


class AnswerPiece(msgspec.Struct, frozen=True):
    """What one event adds to an answer.

    speed  tokens per second, in the last piece
    """

    content: str = ""
    reasoning: str = ""
    tokens: int = 0
    speed: float = 0.0
    reason: str | None = None


def model_name(address: Address) -> str:
    """The first model that the worker serves. Raises ChatError."""
    with _connected(address) as connection:
        reply = _read(_asked(connection, "GET", "/v1/models", address, None))
        return str(reply["data"][0]["id"])


def stream(address: Address, messages: Sequence[dict[str, Any]]) -> Iterator[AnswerPiece]:
    """The answer's pieces as they come; who stops iterating ends the request. Raises ChatError."""
    body = {"messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    with _connected(address) as connection:
        response = _asked(connection, "POST", "/v1/chat/completions", address, body)
        while line := response.readline():
            if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                yield _piece(json.loads(line[6:]))


def _piece(event: dict[str, Any]) -> AnswerPiece:
    if "error" in event:
        raise _refusal(event)
    choice = next(iter(event.get("choices") or ()), {})
    delta = choice.get("delta") or {}
    timings, usage = event.get("timings") or {}, event.get("usage") or {}
    return AnswerPiece(
        content=delta.get("content") or "",
        reasoning=delta.get("reasoning_content") or delta.get("reasoning") or "",
        tokens=usage.get("completion_tokens") or timings.get("predicted_n") or 0,
        speed=timings.get("predicted_per_second") or 0.0,
        reason=choice.get("finish_reason"),
    )


@contextlib.contextmanager
def _connected(address: Address) -> Iterator[http.client.HTTPConnection]:
    scheme, _, place = address.url.partition("://")
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    connection = kind(place.partition("/")[0], timeout=_TIMEOUT_S)
    try:
        yield connection
    except (OSError, http.client.HTTPException) as error:
        raise ChatError(
            f"No worker answers at {address.url}: {error}.",
            hint="Start one with `worker serve`, or leave --url out.",
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ChatError(f"{address.url} is not a worker.", hint="Check --url.") from None
    finally:
        connection.close()


def _asked(
    connection: http.client.HTTPConnection, method: str, path: str, address: Address,
    body: dict[str, Any] | None,
) -> http.client.HTTPResponse:  # fmt: skip
    """The response, if it is a 200. Raises ChatError."""
    headers = {"Content-Type": "application/json"}
    if address.key is not None:
        headers["Authorization"] = f"Bearer {address.key}"
    prefix = address.url.partition("://")[2].partition("/")[2]
    path = f"/{prefix}{path}" if prefix else path
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    if response.status != http.client.OK:
        raise _refusal(_read(response))
    return response


def _read(response: http.client.HTTPResponse) -> dict[str, Any]:
    return json.loads(response.read())


def _refusal(event: dict[str, Any]) -> ChatError:
    return ChatError(str(event["error"]["message"]))
