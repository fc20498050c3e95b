"""How far something is, on the terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from worker.machine import human_bytes

if TYPE_CHECKING:
    from worker.hub.pull import PullProgress


def bar_on_stderr(text: str, *columns: Any, **more: Any) -> Any:
    """rich's progress: a text, a bar and these columns. It leaves nothing on the terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    return Progress(
        TextColumn(text, markup=False), BarColumn(), *columns,
        console=console, transient=True, disable=not console.is_terminal, **more,
    )  # fmt: skip


def of_bytes() -> tuple[Any, ...]:
    """Columns of what is counted in bytes."""
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    return DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn()


@contextlib.contextmanager
def load_progress(name: str, doing: str = "loading") -> Generator[Callable[[float], bool]]:
    """A bar on stderr, where that is a terminal: what is being done (`doing`) to `name`.

    Yields a function that takes the share done, 0 to 1, and returns True, which means to go on.
    """
    if not sys.stderr.isatty():  # a service need not wait until rich is imported
        yield lambda _share: True
        return
    from rich.progress import TaskProgressColumn, TimeElapsedColumn

    columns = TaskProgressColumn(), TimeElapsedColumn()
    with bar_on_stderr("{task.description}", *columns) as progress:
        task = progress.add_task(f"{doing} {name}", total=1.0)

        def report(share: float) -> bool:
            progress.update(task, completed=share)
            if share >= 1:  # stderr is free for log lines now
                progress.stop()
            return True

        yield report


@contextlib.contextmanager
def activity(doing: str) -> Generator[None]:
    """What is being done, with the time that it takes, on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.progress import TimeElapsedColumn

    with bar_on_stderr("{task.description}", TimeElapsedColumn()) as progress:
        progress.add_task(doing, total=None)
        yield


@contextlib.contextmanager
def pull_progress() -> Generator[PullProgress]:
    """A bar on stderr for each file. Without a terminal one line when each file begins."""

    bars: dict[tuple[str, str], Any] = {}
    with bar_on_stderr("{task.description}", *of_bytes()) as progress:

        def report(file: str, stage: str, done: int, total: int) -> None:
            name = file.rpartition("/")[2]
            bar = bars.get((file, stage))
            if bar is None:
                bar = bars[file, stage] = progress.add_task(
                    f"{stage} {name}", total=total, completed=done
                )
                if not progress.console.is_terminal:
                    here = stage == "downloading" and done
                    begun = f"{human_bytes(done)} of " if here else ""
                    sys.stderr.write(f"{stage} {name} ({begun}{human_bytes(total)})\n")
            progress.update(bar, completed=done)

        yield report
