"""What a worker says at GET /v1/requests, and the terminal while it is shown."""

from __future__ import annotations

import contextlib
import http.client
import os
import select
import signal
import sys
import termios
import time
import tty
from typing import TypeVar

import msgspec
from rich.console import Console, Group
from rich.live import Live

from worker.cli.address import Address
from worker.cli.chat_client import connection_to, request
from worker.cli.top.view import view
from worker.errors import WorkerError
from worker.log import harmless
from worker.requests.views import LiveReply

_PATH = "/v1/requests"
_PAUSE_S, _TIMEOUT_S, _MAX_ANSWER = 0.5, 2.0, 8 << 20
_START = "Start one with `worker serve`, or name its address: worker top http://HOST:PORT"
_KEY = "Give it with --api-key-file, --api-key or LLAMA_API_KEY."
_Answer = TypeVar("_Answer")


class WatchError(WorkerError, code="NOT_WATCHED"):
    """The worker answers what is not understood. Asking again is no use."""


class AwayError(WatchError):
    """The worker does not answer, or not with its view; it may later."""


def look(address: Address, kind: type[_Answer]) -> _Answer:
    """What the worker does now, decoded as `kind`. Raises WatchError."""
    url = address.url
    try:
        with contextlib.closing(connection_to(address, _TIMEOUT_S)) as connection:
            response = request(connection, "GET", _PATH, address)
            body = response.read(_MAX_ANSWER)
        if response.status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            words = "asks for a key." if address.key is None else "has another key."
            raise WatchError(f"{url} {words}", hint=_KEY)
        if response.status not in (http.client.OK, http.client.NOT_FOUND):
            words = response.reason
            with contextlib.suppress(ValueError, KeyError, TypeError):
                words = harmless(str(msgspec.json.decode(body)["error"]["message"])[:200])
            raise AwayError(f"{url} answers {response.status}: {words}".rstrip(": .") + ".")
        return msgspec.json.decode(body if response.status == http.client.OK else b"", type=kind)
    except msgspec.ValidationError as error:
        words = f"{url} says what is not understood here: {error}."
        raise WatchError(words, hint="Watch it with `worker top` of its own version.") from None
    except OSError as error:
        words = f"No worker answers at {url}: {error.strerror or error}."
        raise AwayError(words, hint=_START) from None
    except (http.client.HTTPException, ValueError):
        words = f"{url} has no {_PATH}: it is something else, or an older worker."
        raise WatchError(words) from None


def watch(address: Address) -> None:
    """Show the worker until q, Ctrl-C or SIGTERM, also through its restarts. Raises WatchError
    where there is nothing to watch: another program listens there, or the key is wrong."""
    console, reply, gone, since = Console(highlight=False), None, "", 0.0
    keyboard = [sys.stdin.fileno()] if sys.stdin.isatty() else []
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the terminal is given back first
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # it would leave the shell with another screen
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        for each in keyboard:
            stack.callback(termios.tcsetattr, each, termios.TCSAFLUSH, termios.tcgetattr(each))
            tty.setcbreak(each)
        live = stack.enter_context(Live(console=console, screen=True, auto_refresh=False))
        while not {*b"qQ"} & {*_keys(keyboard)}:
            try:
                reply, gone, since = look(address, LiveReply), "", 0.0
            except WatchError as error:
                if reply is None and not isinstance(error, AwayError):
                    raise
                since = since or time.monotonic()
                gone = f"{error.message} Gone for {time.monotonic() - since:.0f} s."
            options = console.options.update_height(console.height)
            live.update(Group(*view(address.url, reply, options, gone)), refresh=True)


def _keys(keyboard: list[int]) -> bytes:
    """Keys that are pressed within half a second; q if the terminal has gone."""
    ready = select.select(keyboard, [], [], _PAUSE_S)[0]
    return (os.read(ready[0], 64) or b"q") if ready else b""
