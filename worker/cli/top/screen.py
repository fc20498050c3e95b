"""The terminal while it shows a worker: the alternate screen, keys, and how it is given back."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Generator

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from worker.cli.top.address import Address
from worker.cli.top.feed import Feed, Sight
from worker.cli.top.glyphs import Glyphs
from worker.cli.top.view import view

_REDRAW_S = 0.25
_LEAVE = frozenset("qQ")


def watch(address: Address) -> None:
    """Show the worker until q, Ctrl-C or SIGTERM.

    Raises WatchError where there is nothing to watch and waiting would not help: another program
    listens there, or the key is wrong.
    """
    console, feed = Console(highlight=False), Feed(address)
    with contextlib.suppress(KeyboardInterrupt), _sigterm_interrupts(), _keys() as pressed:
        with Live(
            console=console, screen=True, auto_refresh=False,
            redirect_stdout=False, redirect_stderr=False,
        ) as live:  # fmt: skip
            shown = None
            while not (sight := feed.sight).is_hopeless:
                wanted = (sight, console.size)
                # How long a worker has been gone changes by itself.
                if wanted != shown or sight.error is not None:
                    live.update(_drawn(sight, address, console), refresh=True)
                    shown = wanted
                if _LEAVE & set(pressed()):
                    return
        assert sight.error is not None
        raise sight.error


def _drawn(sight: Sight, address: Address, console: Console) -> Group:
    """What fills the terminal; `console` knows its size now."""
    width, height = console.size
    problem = None
    if sight.error is not None:
        problem = f"{sight.error.message} Gone for {time.monotonic() - sight.since:.0f} s."
    if sight.activity is None:
        words = problem or f"asking {address} ..."
        return Group(Text(words, no_wrap=True, overflow="ellipsis"))
    glyphs = Glyphs(ascii_only=console.options.ascii_only)
    lines = view(sight.activity, str(address), width, height, glyphs=glyphs, problem=problem)
    return Group(*lines)


@contextlib.contextmanager
def _keys() -> Generator[Callable[[], str]]:
    """A function that waits a moment for keys and returns those that were pressed.

    Without a terminal on standard input there are none. Ctrl-Z is off inside of the block: it
    would leave the shell with the alternate screen.
    """
    if not sys.stdin.isatty():
        yield _no_keys
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    try:
        tty.setcbreak(number)
        mode = termios.tcgetattr(number)
        mode[6][termios.VSUSP] = bytes([os.fpathconf(number, "PC_VDISABLE") & 0xFF])
        termios.tcsetattr(number, termios.TCSANOW, mode)
        yield lambda: _pressed(number)
    finally:
        termios.tcsetattr(number, termios.TCSAFLUSH, before)


def _pressed(number: int) -> str:
    if not select.select([number], [], [], _REDRAW_S)[0]:
        return ""
    data = os.read(number, 64)
    if not data:  # the terminal has gone
        raise KeyboardInterrupt
    return data.decode(errors="replace")


def _no_keys() -> str:
    time.sleep(_REDRAW_S)
    return ""


@contextlib.contextmanager
def _sigterm_interrupts() -> Generator[None]:
    """SIGTERM is like Ctrl-C inside of the block: the terminal is given back first."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
