"""What `worker bench` shows: a table that fills while it runs, the verdict, changes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from worker.bench import embedding as vectors
from worker.bench.embedding import VectorReport
from worker.bench.report import BenchReport
from worker.bench.report.changes import Change, Changes
from worker.bench.report.columns import Column, fitting, tables
from worker.bench.report.words import (
    failures,
    level_lines,
    measured_line,
    scale_lines,
    verdict_lines,
)
from worker.bench.run.runner import Event, Note, Position
from worker.cli.console import data_console, plain, with_title, write_json
from worker.machine import human_bytes

R = TypeVar("R")

_PACE_S = 24 * 3600.0  # the pace of the whole run: some stages take minutes
_REFRESH_PER_S = 4  # what it draws is taken from the CPUs that are measured


def watch(events: Generator[Event | R], show: Callable[[R, int], RenderableType]) -> R:
    """Follow a run on stderr: a live table on a terminal, else a line for each stage.

    show: what is shown of a report while it runs, in so many columns
    """
    console = Console(stderr=True)
    view = _View[R](console.width, show)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(events))
        live = None
        if console.is_terminal:
            live = stack.enter_context(
                Live(view.render(), console=console, refresh_per_second=_REFRESH_PER_S,
                     transient=True, redirect_stdout=False, redirect_stderr=False)
            )  # fmt: skip
        for event in events:
            view.take(event)
            if live is not None:
                live.update(view.render())
            elif line := _line(event):
                sys.stderr.write(f"{line}\n")
    assert view.report is not None
    return view.report


def hand_over(
    report: R,
    write: Callable[[R, Path], Iterable[Path]],
    out: Path | None,
    draw: Callable[[R, int], RenderableType],
    *,
    as_json: bool,
) -> None:
    """Write a report's documents into the folder `out`, if one is named, and print the report.

    draw: what is shown of it, in so many columns
    """
    if out is not None:
        for path in write(report, out):
            sys.stderr.write(f"wrote {path}\n")
    if as_json:
        write_json(report)
    else:
        console = data_console()
        console.print(draw(report, console.width))


class _View(Generic[R]):
    """What is known so far, and how far the stage at work is."""

    def __init__(self, width: int, show: Callable[[R, int], RenderableType]) -> None:
        self._width, self._show = width, show
        self.report: R | None = None
        self._notes: list[str] = []
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            speed_estimate_period=_PACE_S,
        )
        self._whole = self._bar.add_task("the whole run", total=1.0)
        self._stage = self._bar.add_task("starting", total=1.0)

    def take(self, event: Event | R) -> None:
        if isinstance(event, Note):
            self._notes.append(event.text)
        elif not isinstance(event, Position):
            self.report = event
        else:
            self._bar.update(self._whole, completed=event.done)
            name = f"{event.level}: {event.stage}" if event.level else event.stage
            self._bar.update(self._stage, completed=event.share, description=name)

    def render(self) -> RenderableType:
        shown = [] if self.report is None else [self._show(self.report, self._width)]
        return Group(*shown, *map(plain, self._notes), self._bar)


def _line(event: object) -> str | None:
    """What to say of an event where nothing can be drawn: each stage as it begins."""
    if isinstance(event, Position) and event.share == 0.0:
        return f"{event.done:4.0%} {event.level or 'machine'}: {event.stage}"
    return event.text if isinstance(event, Note) else None


def summary(report: BenchReport, width: int) -> RenderableType:
    return Group(*_blocks(tables(report)[0].columns, report, width))


def vector_table(report: VectorReport, _: int) -> RenderableType:
    """Levels of a model that makes vectors, and the level to take."""
    shown = with_title(report.model, plain_table(vectors.HEADINGS, vectors.rows_of(report)))
    return Group(shown, *map(plain, vectors.words_of(report)))


def report_table(report: BenchReport, width: int) -> RenderableType:
    """The summary, the verdict and what the figures mean; the files have everything.

    width: characters of a line; where the summary is wider, the rest of it stands below
    """
    columns = tables(report)[0].columns
    first, *blocks = _blocks(columns, report, width)
    parts: list[RenderableType] = [with_title(report.model, first)]
    for block in blocks:
        parts += [Text(), block]
    legend = [f"{column.title}: {column.meaning}." for column in columns]
    for title, texts in (
        ("Verdict", verdict_lines(report)),
        ("Notes", failures(report)),
        ("Levels", level_lines(report)),
        ("How to read it", [*legend, *scale_lines(report)]),
        ("How it was measured", [measured_line(report)]),
    ):
        if texts:
            parts.append(Text(f"\n{title}", style="bold"))
            parts += [plain(text) for text in texts]
    return Group(*parts)


def _blocks(columns: list[Column], report: BenchReport, width: int) -> Iterator[Table]:
    """Tables of as many columns as fit, each beginning with the first one; none is cut off."""
    for shown in fitting(columns, report.levels, width):
        table = Table(box=None, padding=(0, 1, 0, 0))
        for column in shown:
            justify = "left" if column is columns[0] else "right"
            table.add_column(column.title, justify=justify, no_wrap=True)
        for level in report.levels:
            table.add_row(*(plain(column.text(level)) for column in shown))
        yield table


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The first column to the left, figures to the right."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def changes_table(changes: Changes) -> RenderableType:
    """The figures of two reports, what changed first, and how to read that."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    for title in ("level", "figure", "before", "after", "change", ""):
        table.add_column(title, justify="left" if title in ("level", "figure", "") else "right")
    for change in sorted(changes.changes, key=lambda change: not change.is_real):
        table.add_row(*map(plain, _cells(change)))
    a, b = changes.recommended
    count = sum(change.is_real for change in changes.changes)
    lines = [
        f"{count} of {len(changes.changes)} figures changed. The others differ by less than their "
        "error, or cannot be compared for the reason beside them.",
        "± is half of the 95 % interval, and at least what one run differs from another by.",
        f"recommended: {a or 'none'} before, {b or 'none'} after",
    ]
    lines += [f"differs: {text}" for text in changes.conditions]
    if changes.only_before:
        lines.append(f"only before: {', '.join(changes.only_before)}")
    if changes.only_after:
        lines.append(f"only after: {', '.join(changes.only_after)}")
    return Group(table, *(plain(line) for line in lines))


def _cells(change: Change) -> list[str]:
    delta = change.after - change.before
    relative = f"{delta / change.before:+.1%}" if change.before else f"{delta:+.4g}"
    if change.margin is not None and change.before:
        relative += f" ± {change.margin / abs(change.before):.1%}"
    same = "the same" if delta == 0 else "within the error"
    verdict = "changed" if change.is_real else change.note or same
    return [change.quant, change.figure, _number(change.before, change.unit),
            _number(change.after, change.unit), relative, verdict]  # fmt: skip


def _number(value: float, unit: str) -> str:
    if unit == "bytes":
        return human_bytes(round(value))
    digits = 0 if abs(value) >= 1000 else 2 if unit == "tokens/s" else 5
    return f"{value:,.{digits}f} {unit.replace('tokens', 'tok')}".rstrip()
