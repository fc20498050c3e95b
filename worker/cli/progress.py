"""How far something is, on the terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from worker.machine import human_bytes

if TYPE_CHECKING:
    from worker.hub.pull import PullProgress


def _rich() -> tuple[Any, Any]:
    """Its console and progress, imported with the first bar: a service need not wait for them."""
    from rich import console, progress

    return console, progress


def bar_on_stderr(text: str, *columns: Any, **more: Any) -> Any:
    """rich's progress: a text, a bar and these columns. It leaves nothing on the terminal."""
    terminal, made = _rich()
    console = terminal.Console(stderr=True)
    parts = made.TextColumn(text, markup=False), made.BarColumn(), *columns
    is_off = not console.is_terminal
    return made.Progress(*parts, console=console, transient=True, disable=is_off, **more)


def of_bytes() -> tuple[Any, ...]:
    """Columns of what is counted in bytes."""
    _, made = _rich()
    size = made.DownloadColumn(binary_units=True)
    return size, made.TransferSpeedColumn(), made.TimeRemainingColumn()


def of_items() -> tuple[Any, ...]:
    """The column of what is counted one by one."""
    return (_rich()[1].MofNCompleteColumn(),)


def of_items_and_time() -> tuple[Any, ...]:
    """The same, and the time that the rest will take."""
    return (*of_items(), _rich()[1].TimeRemainingColumn())


@contextlib.contextmanager
def load_progress(name: str, doing: str = "loading") -> Generator[Callable[[float], bool]]:
    """A bar on stderr, where that is a terminal: what is being done (`doing`) to `name`.

    Yields a function that takes the share done, 0 to 1, and returns True, which means to go on.
    """
    if not sys.stderr.isatty():
        yield lambda _share: True
        return
    _, made = _rich()
    columns = made.TaskProgressColumn(), made.TimeElapsedColumn()
    with bar_on_stderr("{task.description}", *columns) as progress:
        task = progress.add_task(f"{doing} {name}", total=1.0)

        def report(share: float) -> bool:
            progress.update(task, completed=share)
            if share >= 1:  # stderr is free for log lines now
                progress.stop()
            return True

        yield report


@contextlib.contextmanager
def stage_progress() -> Generator[Callable[[str, float], None]]:
    """A bar on stderr for one stage after the other; without a terminal a line when each begins.

    Yields a function that takes what is being done and the share of it that is done.
    """
    doing = ""
    with bar_on_stderr("{task.description}", _rich()[1].TimeElapsedColumn()) as progress:
        bar = progress.add_task("", total=1.0)

        def show(stage: str, share: float) -> None:
            nonlocal doing
            if stage != doing:
                doing = stage
                progress.reset(bar, description=stage)
                if not progress.console.is_terminal:
                    sys.stderr.write(f"{stage}\n")
            progress.update(bar, completed=share)

        yield show


@contextlib.contextmanager
def activity(doing: str) -> Generator[None]:
    """What is being done, with the time that it takes, on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    elapsed = _rich()[1].TimeElapsedColumn()
    with bar_on_stderr("{task.description}", elapsed) as progress:
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
