"""What `worker bench` shows: a table that fills while it runs, the verdict, changes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from worker.bench.changes import Change, Changes
from worker.bench.columns import Column
from worker.bench.events import Event, Finished, LevelDone, Note, Step
from worker.bench.plan import Plan
from worker.bench.results import LevelReport, Report
from worker.bench.summary import paragraphs
from worker.bench.tables import tables
from worker.cli.console import plain, titled
from worker.machine import human_bytes

_REFRESH_PER_S = 4  # what it draws is taken from the CPUs that are measured


def watch(events: Generator[Event], plan: Plan) -> Report:
    """Follow a run on stderr: a live table on a terminal, else a line for each level."""
    console, view = Console(stderr=True), _View(plan)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(events))
        live = None
        if console.is_terminal:
            live = stack.enter_context(
                Live(view.render(), console=console, refresh_per_second=_REFRESH_PER_S,
                     transient=True, redirect_stdout=False, redirect_stderr=False)
            )  # fmt: skip
        for event in events:
            if isinstance(event, Finished):
                return event.report
            view.take(event)
            if live is not None:
                live.update(view.render())
            elif line := view.line(event):
                sys.stderr.write(f"{line}\n")
    raise AssertionError("a run ends with its report")


class _View:
    """The levels so far, and how far the one at work is."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._done: dict[str, LevelReport] = {}
        self._notes: list[str] = []
        self._step: Step | None = None
        self._bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn()
        )
        self._whole = self._bar.add_task("the whole run", total=1.0)
        self._stage = self._bar.add_task("starting", total=1.0)

    def take(self, event: Event) -> None:
        """Note what happened."""
        if isinstance(event, LevelDone):
            self._done[event.level.quant] = event.level
        elif isinstance(event, Step):
            self._step = event
            left = "" if event.left_s is None else f", {_duration(event.left_s)} left"
            self._bar.update(self._whole, completed=event.done, description=f"all{left}")
            name = f"{event.level}: {event.stage}" if event.level else event.stage
            self._bar.update(self._stage, completed=event.share, description=name)
        elif not isinstance(event, Finished):
            self._notes.append(event.text)

    def line(self, event: Event) -> str | None:
        """What to say of an event where nothing can be drawn: each stage as it begins."""
        if isinstance(event, Step) and event.share == 0.0:
            left = "" if event.left_s is None else f", {_duration(event.left_s)} left"
            return f"{event.done:4.0%} {event.level or 'machine'}: {event.stage}{left}"
        return event.text if isinstance(event, Note) else None

    def render(self) -> RenderableType:
        """Table, notes, bars."""
        table = Table(box=None)
        for title in ("level", "size", "load s", "read", "write", "HTTP", "peak", "KLD", "top"):
            table.add_column(title, justify="left" if title == "level" else "right")
        for level in self._plan.levels:
            found = self._done.get(level.name)
            table.add_row(*(_row(found) if found else [plain(level.name)]))
        notes = [plain(text) for text in self._notes]
        return Group(table, *notes, self._bar)


def _row(level: LevelReport) -> list[Text]:
    speed, memory, quality = level.speed, level.memory, level.quality
    cells = [level.quant, human_bytes(level.size_bytes)]
    cells.append(f"{level.load.warm.mean:.2f}" if level.load else "–")
    cells.append(f"{speed.prefill_tokens_per_s:.1f}" if speed else "–")
    cells.append(f"{speed.decode_tokens_per_s:.1f}" if speed else "–")
    served = speed.served_tokens_per_s if speed else None
    cells.append(f"{served:.1f}" if served is not None else "–")
    cells.append(human_bytes(memory.peak_rss) if memory and memory.peak_rss else "–")
    cells.append(f"{abs(quality.kld_mean):.5f}" if quality else "–")
    cells.append(f"{quality.same_top:.1%}" if quality else "–")
    return [plain(cell) for cell in cells]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def report_table(report: Report, width: int) -> RenderableType:
    """The summary and all the words; the files have the other tables.

    width: characters of a line; where the summary is wider, the rest of it stands below
    """
    first, *blocks = _blocks(tables(report)[0].columns, report, width)
    parts: list[RenderableType] = [titled(report.model, first)]
    for block in blocks:
        parts += [Text(), block]
    for title, texts in paragraphs(report):
        parts.append(Text(f"\n{title}", style="bold"))
        parts += [plain(text) for text in texts]
    return Group(*parts)


def _blocks(columns: list[Column], report: Report, width: int) -> Iterator[Table]:
    """Tables of as many columns as fit, each beginning with the first one; none is cut off."""
    name, *rest = columns

    def wide(column: Column) -> int:
        return 1 + max(map(len, (column.title, *map(column.text, report.levels))))

    while rest:
        table, room, count = Table(box=None, padding=(0, 1, 0, 0)), width - wide(name), 0
        while count < len(rest) and (not count or room >= wide(rest[count])):
            room -= wide(rest[count])
            count += 1
        shown, rest = [name, *rest[:count]], rest[count:]
        for column in shown:
            justify = "left" if column is name else "right"
            table.add_column(column.title, justify=justify, no_wrap=True)
        for level in report.levels:
            table.add_row(*(plain(column.text(level)) for column in shown))
        yield table


def changes_table(changes: Changes) -> RenderableType:
    """What changed; what is real first."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    for title in ("level", "figure", "before", "after", "change", ""):
        table.add_column(title, justify="left" if title in ("level", "figure", "") else "right")
    for change in sorted(changes.changes, key=lambda change: not change.is_real):
        table.add_row(*map(plain, _cells(change)))
    a, b = changes.recommended
    lines = [f"recommended: {a or 'none'} before, {b or 'none'} after"]
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
    verdict = "real" if change.is_real else change.note or "not real"
    return [change.quant, change.figure.replace("_", " "), _number(change.before, change.unit),
            _number(change.after, change.unit), relative, verdict]  # fmt: skip


def _number(value: float, unit: str) -> str:
    if unit == "bytes":
        return human_bytes(round(value))
    return f"{value:.5g} {unit.removeprefix('tokens')}".rstrip()
