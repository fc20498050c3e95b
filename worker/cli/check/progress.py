"""How far a check is, on the terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Generator
from typing import Any

from worker.cli.console import one_line
from worker.cli.progress import bar_on_stderr, of_bytes

_PATIENCE_S, _PAUSE_S = 2.0, 0.1
_MAX_NAME = 40


class CheckProgress:
    """A bar on stderr that appears after 2 s; mostly all is done before anybody wonders.

    Without a terminal on stderr it never appears. `total` is in files, or in bytes.
    """

    def __init__(self, total: int, *, in_bytes: bool) -> None:
        self._total, self._in_bytes = total, in_bytes
        self._done, self._name = 0, ""
        self._due = time.monotonic() + _PATIENCE_S if sys.stderr.isatty() else float("inf")
        self._bar: Any = None

    def about(self, name: str) -> None:
        self._name = name
        self._show()

    def add(self, amount: int) -> None:
        """So many more files or bytes are done."""
        self._done += amount
        self._show()

    def hide(self) -> None:
        """Take the bar off the terminal; the next step shows it again."""
        if self._bar is not None:
            self._bar.stop()

    def _show(self) -> None:
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _PAUSE_S
        if self._bar is None:
            self._bar = _make_bar(self._total, in_bytes=self._in_bytes)
        name = one_line(self._name).plain
        shown = name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
        self._bar.update(self._bar.task_ids[0], completed=self._done, description=shown)
        self._bar.start()


@contextlib.contextmanager
def check_progress(total: int, *, in_bytes: bool) -> Generator[CheckProgress]:
    """A progress that leaves nothing on the terminal when the block ends."""
    progress = CheckProgress(total, in_bytes=in_bytes)
    try:
        yield progress
    finally:
        progress.hide()


def _make_bar(total: int, *, in_bytes: bool) -> Any:
    from rich.progress import MofNCompleteColumn

    columns = of_bytes() if in_bytes else (MofNCompleteColumn(),)
    # What is written to stdout is data, and may go to a pipe.
    unredirected = {"redirect_stdout": False, "redirect_stderr": False}
    bar = bar_on_stderr("checking {task.description}", *columns, **unredirected)
    bar.add_task("", total=total)
    return bar
