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
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec
from rich.console import Console, Group
from rich.live import Live

from worker.cli.address import Address
from worker.cli.console import data_console, write_json
from worker.cli.top.view import View, WatchError
from worker.log import harmless
from worker.requests.views import LiveReply

_PATH = "/v1/requests"
_PAUSE_S, _TIMEOUT_S = 0.5, 2.0
_MAX_ANSWER = 8 << 20
_Answer = TypeVar("_Answer")


def look(address: Address, kind: type[_Answer]) -> _Answer:
    """What the worker does now, decoded as `kind`. Raises WatchError."""
    url = address.url
    headers = {"Authorization": f"Bearer {address.key}"} if address.key is not None else {}
    try:
        with contextlib.closing(address.connection(_TIMEOUT_S)) as connection:
            connection.request("GET", address.prefix + _PATH, headers=headers)
            response = connection.getresponse()
            body = response.read(_MAX_ANSWER)
        if response.status == http.client.NOT_FOUND:
            raise ValueError  # no worker's answer
        if response.status != http.client.OK:
            raise _refusal(address, response.status, body)
        return msgspec.json.decode(body, type=kind)
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


def _refusal(address: Address, status: int, body: bytes) -> WatchError:
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        words = "asks for a key." if address.key is None else "has another key."
        hint = "Give it with --api-key-file, --api-key or LLAMA_API_KEY."
        return WatchError(f"{address.url} {words}", hint=hint, lasting=True)
    try:
        words = harmless(str(msgspec.json.decode(body)["error"]["message"])[:200])
    except (ValueError, KeyError, TypeError):
        words = http.client.responses.get(status, "")
    return WatchError(f"{address.url} answers {status}: {words}".rstrip(": .") + ".")


def show(address: Address, *, as_json: bool, once: bool) -> None:
    """Print what the worker does, or watch it. Raises WatchError where there is nothing to show."""
    console = data_console()
    if as_json:
        write_json(look(address, dict[str, Any]))
    elif once or not sys.stdout.isatty() or console.is_dumb_terminal:
        console.print(Group(*View(address.url, look(address, LiveReply)).lines(console.options)))
    else:
        watch(address)


def watch(address: Address) -> None:
    """Show the worker until q, Ctrl-C or SIGTERM, also through its restarts.

    Raises WatchError where there is nothing to watch and waiting would not help: another program
    listens there, or the key is wrong.
    """
    console, view = Console(highlight=False), View(address.url)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the terminal is given back first
    with (
        contextlib.suppress(KeyboardInterrupt), _keys() as read_keys,
        Live(console=console, screen=True, auto_refresh=False,
             redirect_stdout=False, redirect_stderr=False) as live,
    ):  # fmt: skip
        while not {*b"qQ"} & {*read_keys()}:
            try:
                view = View(view.url, look(address, LiveReply))
            except WatchError as error:
                if view.reply is None and error.lasting:
                    raise
                view = View(view.url, view.reply, error, view.since or time.monotonic())
            options = console.options.update_height(console.height)
            live.update(Group(*view.lines(options)), refresh=True)


@contextlib.contextmanager
def _keys() -> Generator[Callable[[], bytes]]:
    """A function that waits half a second for keys and returns those that were pressed.

    Without a terminal on standard input there are none. Ctrl-Z is off inside of the block: it
    would leave the shell with the alternate screen.
    """
    terminals = [sys.stdin.fileno()] if sys.stdin.isatty() else []

    def read_keys() -> bytes:
        ready = select.select(terminals, [], [], _PAUSE_S)[0]
        return (os.read(ready[0], 64) or b"q") if ready else b""  # nothing: the terminal has gone

    before = [termios.tcgetattr(terminal) for terminal in terminals]
    try:
        for terminal in terminals:
            tty.setcbreak(terminal)
            mode = termios.tcgetattr(terminal)
            mode[6][termios.VSUSP] = bytes([os.fpathconf(terminal, "PC_VDISABLE") & 0xFF])
            termios.tcsetattr(terminal, termios.TCSANOW, mode)
        yield read_keys
    finally:
        for terminal, mode in zip(terminals, before, strict=True):
            termios.tcsetattr(terminal, termios.TCSAFLUSH, mode)
