"""How far something is, on the terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worker.hub.pull import PullProgress


@contextlib.contextmanager
def load_progress(name: str, doing: str = "loading") -> Generator[Callable[[float], bool]]:
    """A bar on stderr, where that is a terminal: what is being done (`doing`) to `name`.

    Yields a function that takes the share done, 0 to 1, and returns True, which means to go on.
    """
    if not sys.stderr.isatty():  # a service need not wait until rich is imported
        yield lambda _share: True
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(f"{doing} {name}", total=1.0)

        def report(share: float) -> bool:
            progress.update(task, completed=share)
            if share >= 1:  # stderr is free for log lines now
                progress.stop()
            return True

        yield report


@contextlib.contextmanager
def pull_progress() -> Generator[PullProgress]:
    """A bar on stderr for each file. Without a terminal one line when each file begins."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from worker.machine import human_bytes

    console = Console(stderr=True)
    bars: dict[tuple[str, str], Any] = {}
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:

        def report(file: str, stage: str, done: int, total: int) -> None:
            name = file.rpartition("/")[2]
            bar = bars.get((file, stage))
            if bar is None:
                bar = bars[file, stage] = progress.add_task(
                    f"{stage} {name}", total=total, completed=done
                )
                if not console.is_terminal:
                    here = stage == "downloading" and done
                    begun = f"{human_bytes(done)} of " if here else ""
                    sys.stderr.write(f"{stage} {name} ({begun}{human_bytes(total)})\n")
            progress.update(bar, completed=done)

        yield report
