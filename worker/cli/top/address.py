"""The worker to watch: its address, one question to it, and its events."""

from __future__ import annotations

import argparse
import http.client
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from worker.cli.options import settings_from
from worker.errors import UsageError, WorkerError
from worker.isolation.keys import hide_key
from worker.log import harmless

_PATH = "/v1/requests"
_TIMEOUT_S = 5.0  # without an event or an answer; events come twice a second
_MAX_EVENT = 8 << 20
_MAX_ERROR = 1 << 16


class WatchError(WorkerError):
    """The worker does not answer, or answers something else. lasting: asking again is no use."""

    default_code = "NOT_WATCHED"

    def __init__(self, message: str, *, hint: str | None = None, lasting: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.lasting = lasting


class Address(msgspec.Struct, frozen=True):
    """Where a worker listens, and the key that it asks for."""

    host: str
    port: int
    secure: bool
    prefix: str
    key: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.prefix}"


def parse_address(text: str, key: str | None) -> Address:
    """`http://HOST:PORT/PREFIX`, also without scheme, port or prefix. Raises UsageError."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port
    except ValueError:
        raise _no_url(text) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not _is_plain(parts):
        raise _no_url(text)
    secure = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if secure else 80), secure,
                   parts.path.rstrip("/"), key)  # fmt: skip


def address_from(arguments: argparse.Namespace) -> Address:
    """What a command was given: `url`, and a key, which is hidden now. Raises UsageError."""
    key = next(iter(settings_from(arguments).api_keys), None)
    hide_key()
    return parse_address(arguments.url, key)


def _is_plain(parts: SplitResult) -> bool:
    """Whether it can stand in a request: no control characters, nothing beside host and path."""
    text = parts.geturl()
    return text.isascii() and text.isprintable() and " " not in text and parts.username is None


def _no_url(text: str) -> UsageError:
    return UsageError(f"{text!r} is no worker's address.", hint="Write http://HOST:PORT.")


def ask(address: Address) -> Any:
    """What it does now, as decoded JSON. Raises WatchError."""
    with _answer(address, _PATH, "application/json") as response:
        body = response.read(_MAX_EVENT)
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        raise _other(address) from None


def events(address: Address) -> Generator[Any]:
    """The same each half a second, until the worker ends it. Raises WatchError."""
    with _answer(address, f"{_PATH}?stream=true", "text/event-stream") as response:
        if "text/event-stream" not in (response.getheader("Content-Type") or ""):
            raise _other(address)
        while line := response.readline(_MAX_EVENT):
            if line.startswith(b"data: "):
                try:
                    yield msgspec.json.decode(line[6:])
                except msgspec.DecodeError:
                    raise _other(address) from None


@contextmanager
def _answer(address: Address, path: str, accept: str) -> Generator[http.client.HTTPResponse]:
    """The answer to a GET with status 200. Raises WatchError, for what is read from it too."""
    kind = http.client.HTTPSConnection if address.secure else http.client.HTTPConnection
    connection = kind(address.host, address.port, timeout=_TIMEOUT_S)
    headers = {"Accept": accept}
    if address.key is not None:
        headers["Authorization"] = f"Bearer {address.key}"
    try:
        connection.request("GET", address.prefix + path, headers=headers)
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise _refused(address, path, response.status, response.read(_MAX_ERROR))
        yield response
    except TimeoutError:
        raise WatchError(f"{address} says nothing for {_TIMEOUT_S:.0f} s.") from None
    except OSError as error:
        raise WatchError(
            f"No worker answers at {address}: {error.strerror or error}.",
            hint="Start one with `worker serve`, or name its address: worker top http://HOST:PORT",
        ) from None
    except (http.client.HTTPException, ValueError):
        raise _other(address) from None
    finally:
        connection.close()


def _refused(address: Address, path: str, status: int, body: bytes) -> WatchError:
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        return WatchError(
            f"{address} asks for a key." if address.key is None else f"{address} has another key.",
            hint="Give it with --api-key-file, --api-key or LLAMA_API_KEY.", lasting=True,
        )  # fmt: skip
    if status == http.client.NOT_FOUND:
        return WatchError(
            f"{address} has no {path.partition('?')[0]}: it is something else, or an older one.",
            lasting=True,
        )
    try:
        message = str(msgspec.json.decode(body)["error"]["message"])[:200]
    except (msgspec.DecodeError, KeyError, TypeError, UnicodeDecodeError):
        message = http.client.responses.get(status, "")
    return WatchError(f"{address} answers {status}: {harmless(message)}".rstrip(": .") + ".")


def _other(address: Address) -> WatchError:
    return WatchError(f"{address} answers something that is not a worker's.", lasting=True)
