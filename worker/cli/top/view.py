"""What a worker does -> lines of text that fit a terminal.

Everything that came over the network goes through `plain`: a request's id or a line of log must
neither control the terminal nor be read as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from worker.cli.console import one_line
from worker.cli.top.activity import Activity, WatchedWorker
from worker.cli.top.glyphs import Glyphs
from worker.cli.top.tables import ended_rows, log_rows, request_rows
from worker.machine import human_bytes

_STATES = {"ready": "bold green", "loading": "bold yellow", "draining": "bold yellow"}
_LEAST_LOG, _MOST_RECENT = 3, 8
_LOW, _ROOMY = 12, 12  # lines of the terminal, and those below the figures
_WIDE = 110


def view(
    activity: Activity,
    address: str,
    width: int,
    height: int | None,
    *,
    glyphs: Glyphs,
    problem: str | None = None,
) -> list[Text]:
    """Lines of at most `width` cells, at most `height` of them, or as many as there are.

    problem: why this is no longer so, in one sentence; None: it is
    """  # fmt: skip
    low = height is not None and height < _LOW
    figures = list(_figures(activity, width, glyphs))[: 2 if low else None]
    lines = [*_head(activity.worker, address, problem), *figures]
    wide = width >= _WIDE
    requests = request_rows(activity.data, width, glyphs, wide=wide)
    ended = ended_rows(activity.recent, width, wide=wide)
    log = log_rows(activity.log)
    if height is not None:
        requests, ended, log = _share(height - len(lines), requests, ended, log)
    for part in (requests, ended, log):
        if part:
            lines += [Text(), *part]
    for index, line in enumerate(lines):
        if problem is not None and index > 1:
            line.stylize("dim")  # so it was
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
    return lines if height is None else lines[:height]


def _share(
    room: int, requests: list[Text], ended: list[Text], log: list[Text]
) -> tuple[list[Text], list[Text], list[Text]]:
    """What of the three parts, each behind an empty line and a heading, fits into `room` lines.

    Requests come first; the log keeps a few lines, and gets what the others leave.
    """
    kept = min(len(log), 1 + _LEAST_LOG) + 1 if room >= _ROOMY else 0
    requests = _cut(requests, max(2, room - kept - 1))
    room -= len(requests) + 1
    spare = room - kept - 1
    ended = ended[: min(spare, 1 + _MOST_RECENT)] if spare >= 2 else []
    room -= len(ended) + 1 if ended else 0
    rows = room - 2
    return requests, ended, [log[0], *log[1:][-rows:]] if rows > 0 and len(log) > 1 else []


def _cut(rows: list[Text], most: int) -> list[Text]:
    """The first rows, and how many there are besides."""
    if len(rows) <= most:
        return rows
    return [*rows[: most - 1], Text(f"  … and {len(rows) - most + 1} more", "dim")]


def _head(worker: WatchedWorker, address: str, problem: str | None) -> list[Text]:
    state = ("gone", "bold red") if problem else (worker.state, _STATES.get(worker.state, "bold"))
    line = Text.assemble(
        state if problem else (one_line(state[0]).plain, state[1]), "  ",
        (one_line(worker.model or "no model").plain, "bold"), "  ",
        (f"up {_span(worker.uptime_s)}  ", ""), (one_line(address).plain, "dim"),
    )  # fmt: skip
    counts = f"{worker.running:,} running, {worker.waiting:,} waiting, {worker.slots:,} slots"
    resident, planned = worker.memory.resident_bytes, worker.memory.planned_bytes
    memory = f"memory {human_bytes(resident)}" if resident is not None else ""
    if resident is not None and planned is not None:
        memory += f" of {human_bytes(planned + worker.kept.memory_bytes)} planned"
    second = one_line(problem) if problem else Text(counts)
    second.stylize("red" if problem else "")
    return [line, second if problem else _joined((second, Text(memory)))]


def _figures(activity: Activity, width: int, glyphs: Glyphs) -> Iterable[Text]:
    worker = activity.worker
    cells, kept, totals = worker.cells, worker.kept, worker.totals
    told = _joined((
        Text(f"{cells.live:,} live", "green"), Text(f"{cells.cached:,} cached", "cyan"),
        Text(f"{cells.free:,} free", "dim"),
    ))  # fmt: skip
    room = max(10, width - 9 - told.cell_len - 2)
    total = max(1, cells.total)
    bar = glyphs.bar(((cells.live / total, "green"), (cells.cached / total, "cyan")), room)
    yield Text.assemble(("cells    ", "dim"), bar, "  ", told)
    room = max(5, (width - 9) // 2 - 20)
    pairs: list[Text] = []
    for column, verb, style in ((1, "read", "yellow"), (2, "written", "green")):
        values = [point[column] for point in activity.speeds]
        now = f"{values[-1]:,.1f}" if values else "–"
        spark = glyphs.sparkline(values, min(room, 120))
        pairs.append(Text.assemble((spark, style), f" {now} {verb}/s"))
    pairs[0].pad_right(max(0, (width - 9) // 2 - pairs[0].cell_len))
    yield Text.assemble(("tokens   ", "dim"), *pairs)
    yield _joined((
        Text.assemble(("totals   ", "dim"), f"{totals.requests:,} requests"),
        Text(f"{totals.errors:,} errors", "red" if totals.errors else ""),
        Text(f"{totals.prompt_tokens:,} read"), Text(f"{totals.cached_tokens:,} cached"),
        Text(f"{totals.generated_tokens:,} written"),
    ))  # fmt: skip
    parts = [_of("memory", kept.memory_bytes, kept.memory_limit_bytes),
             _of("disk", kept.disk_bytes, kept.disk_limit_bytes)]  # fmt: skip
    if any(parts):
        yield Text.assemble(("kept     ", "dim"), _joined([Text(part) for part in parts if part]))


def _of(what: str, held: int, limit: int | None) -> str:
    """Empty where nothing may be kept there."""
    return f"{what} {human_bytes(held)} of {human_bytes(limit)}" if limit else ""


def _joined(parts: Sequence[Text]) -> Text:
    return Text(", ").join(part for part in parts if part.plain)


def _span(seconds: float) -> str:
    """3725.2 -> '1:02:05'."""
    whole = max(0, int(seconds))
    minutes = f"{whole // 60 % 60}:{whole % 60:02d}"
    return minutes if whole < 3600 else f"{whole // 3600}:{minutes.zfill(5)}"
