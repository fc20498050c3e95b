"""The worker to watch: its address, and its answers to GET /v1/requests."""

from __future__ import annotations

import argparse
import contextlib
import http.client
from collections.abc import Generator
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from worker.cli.options import settings_from
from worker.errors import UsageError, WorkerError
from worker.isolation.keys import hide_key
from worker.log import harmless

_PATH = "/v1/requests"
_TIMEOUT_S = 5.0  # without an event or an answer; events come twice a second
_MAX_ANSWER = 8 << 20
_Answer = TypeVar("_Answer")


class WatchError(WorkerError, code="NOT_WATCHED"):
    """The worker does not answer, or answers something else. lasting: asking again is no use."""

    def __init__(self, message: str, *, hint: str | None = None, lasting: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.lasting = lasting


class Address(msgspec.Struct, frozen=True):
    """Where a worker listens, a URL without a slash at its end; and the key that it asks for."""

    url: str
    key: str | None


def address_from(arguments: argparse.Namespace) -> Address:
    """What a command was given: a key, which is hidden now, and `url`: `http://HOST:PORT/PREFIX`,
    also without scheme, port or prefix. Raises UsageError."""
    key = next(iter(settings_from(arguments).api_keys), None)
    hide_key()
    text: str = arguments.url
    with contextlib.suppress(ValueError):  # as of a wrong port
        parts = urlsplit(text if "://" in text else f"http://{text}")
        url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        is_plain = url.isascii() and url.isprintable() and not {" ", "@"} & set(url)
        if is_plain and parts.hostname and parts.scheme in ("http", "https") and parts.port != 0:
            return Address(url, key)
    raise UsageError(f"{text!r} is no worker's address.", hint="Write http://HOST:PORT.")


def answers(address: Address, kind: type[_Answer], *, follow: bool = False) -> Generator[_Answer]:
    """What it does now, decoded as `kind`; with `follow` twice a second until it ends the events.

    Raises WatchError.
    """
    parts, url = urlsplit(address.url), address.url
    scheme = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = scheme(parts.netloc, timeout=_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {address.key}"} if address.key is not None else {}
    try:
        path = parts.path + _PATH + ("?stream=true" if follow else "")
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        if response.status not in (http.client.OK, http.client.NOT_FOUND):
            raise _refused(address, response.status, response.read(_MAX_ANSWER))
        is_events = response.getheader("Content-Type", "").startswith("text/event-stream")
        if response.status == http.client.NOT_FOUND or is_events != follow:
            raise ValueError  # no worker's answer
        if not follow:
            yield msgspec.json.decode(response.read(_MAX_ANSWER), type=kind)
        while follow and (line := response.readline(_MAX_ANSWER)):
            if line.startswith(b"data: "):
                yield msgspec.json.decode(line[6:], type=kind)
    except msgspec.ValidationError as error:
        message = f"{url} says what is not understood here: {error}."
        hint = "Watch it with `worker top` of its own version."
        raise WatchError(message, hint=hint, lasting=True) from None
    except OSError as error:
        message = f"No worker answers at {url}: {error.strerror or error}."
        hint = "Start one with `worker serve`, or name its address: worker top http://HOST:PORT"
        raise WatchError(message, hint=hint) from None
    except (http.client.HTTPException, ValueError):
        message = f"{url} has no {_PATH}: it is something else, or an older worker."
        raise WatchError(message, lasting=True) from None
    finally:
        connection.close()


def _refused(address: Address, status: int, body: bytes) -> WatchError:
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        words = "asks for a key." if address.key is None else "has another key."
        hint = "Give it with --api-key-file, --api-key or LLAMA_API_KEY."
        return WatchError(f"{address.url} {words}", hint=hint, lasting=True)
    try:
        words = harmless(str(msgspec.json.decode(body)["error"]["message"])[:200])
    except (ValueError, KeyError, TypeError):
        words = http.client.responses.get(status, "")
    return WatchError(f"{address.url} answers {status}: {words}".rstrip(": .") + ".")
