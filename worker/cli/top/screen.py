"""The terminal while it shows a worker: what is followed, keys, and how it is given back."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Generator

from rich.console import Console, Group
from rich.live import Live

from worker.cli.top.address import Address, WatchError, answers
from worker.cli.top.view import View
from worker.requests.views import LiveReply

_REDRAW_S, _AGAIN_S = 0.25, 0.5


class Feed(threading.Thread):
    """Follows the worker at `address` until the process ends, also through its restarts."""

    def __init__(self, address: Address) -> None:
        super().__init__(daemon=True)  # who leaves must not wait for a worker that hangs
        self._address = address
        self.view = View(address.url)  # replaced as a whole, so a reader needs no lock
        self.start()

    def run(self) -> None:
        while True:
            before = self.view
            try:
                for reply in answers(self._address, LiveReply, follow=True):
                    self.view = View(before.url, reply)
                if self.view is before:  # a worker that drains ends its events after the first
                    raise WatchError(f"{before.url} ends the connection without an event.")
            except WatchError as error:
                since = self.view.since or time.monotonic()
                self.view = View(before.url, self.view.reply, error, since)
            time.sleep(_AGAIN_S)


def watch(address: Address) -> None:
    """Show the worker until q, Ctrl-C or SIGTERM.

    Raises WatchError where there is nothing to watch and waiting would not help: another program
    listens there, or the key is wrong.
    """
    console, feed = Console(highlight=False), Feed(address)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the terminal is given back first
    with (
        contextlib.suppress(KeyboardInterrupt), _keys() as pressed,
        Live(console=console, screen=True, auto_refresh=False,
             redirect_stdout=False, redirect_stderr=False) as live,
    ):  # fmt: skip
        while not {*b"qQ"} & {*pressed()}:
            view = feed.view
            if view.error is not None and view.reply is None and view.error.lasting:
                raise view.error
            options = console.options.update_height(console.height)
            live.update(Group(*view.lines(options)), refresh=True)


@contextlib.contextmanager
def _keys() -> Generator[Callable[[], bytes]]:
    """A function that waits a moment for keys and returns those that were pressed.

    Without a terminal on standard input there are none. Ctrl-Z is off inside of the block: it
    would leave the shell with the alternate screen.
    """
    terminals = [sys.stdin.fileno()] if sys.stdin.isatty() else []

    def pressed() -> bytes:
        ready = select.select(terminals, [], [], _REDRAW_S)[0]
        return (os.read(ready[0], 64) or b"q") if ready else b""  # nothing: the terminal has gone

    before = [termios.tcgetattr(terminal) for terminal in terminals]
    try:
        for terminal in terminals:
            tty.setcbreak(terminal)
            mode = termios.tcgetattr(terminal)
            mode[6][termios.VSUSP] = bytes([os.fpathconf(terminal, "PC_VDISABLE") & 0xFF])
            termios.tcsetattr(terminal, termios.TCSANOW, mode)
        yield pressed
    finally:
        for terminal, mode in zip(terminals, before, strict=True):
            termios.tcsetattr(terminal, termios.TCSAFLUSH, mode)
