"""What a worker does, drawn so that it fits a terminal.

Everything that came over the network goes through `harmless` into a Text: a request's id or a line
of log must neither control the terminal nor be read as markup. Columns have fixed widths, so that
rows do not jump when a value changes; the first one gets what is left.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from time import monotonic

import msgspec
from rich.console import ConsoleOptions, Group, RenderableType
from rich.styled import Styled
from rich.table import Table
from rich.text import Text

from worker.errors import WorkerError
from worker.log import harmless
from worker.machine import human_bytes
from worker.requests.views import EndedRequest, LiveReply, LiveRequest

_STYLES = {
    "ready": "bold green", "draining": "bold yellow", "failed": "bold red", "gone": "bold red",
    "waiting": "yellow", "reading": "cyan", "writing": "green",
    "cancelled": "yellow", "left": "yellow", "refused": "yellow", "error": "red",
    "warning": "yellow", "critical": "red",
}  # fmt: skip
# Full, half and empty cells of a bar; levels of a curve. Also for who knows ASCII only.
_BLOCKS, _ASCII = ("█▓░", "▁▂▃▄▅▆▇█"), ("#+.", "_.,-=+*#")
# Negative: to the right. A column that does not fit is left out, with those behind it.
_FIRST, _WIDTHS = 10, (10, -17, -9, -9, -8, -8, 10, 25)
_ENDED_WIDTHS = (*_WIDTHS[:-2], 16, 25)  # in 120 columns all have room


class WatchError(WorkerError, code="NOT_WATCHED"):
    """The worker does not answer, or answers something else. lasting: asking again is no use."""

    def __init__(self, message: str, *, hint: str | None = None, lasting: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.lasting = lasting


class View(msgspec.Struct, frozen=True):
    """What was seen last of the worker at `url`.

    reply  None: it did not answer yet
    error  why it does not now; None: it does, or was not asked yet
    since  when that began, by the monotonic clock; 0: it did not
    """

    url: str
    reply: LiveReply | None = None
    error: WatchError | None = None
    since: float = 0.0

    def lines(self, options: ConsoleOptions) -> Iterator[RenderableType]:
        """As many as there are, or those that fit into the height that `options` give."""
        gone = self.error and f"{self.error.message} Gone for {monotonic() - self.since:.0f} s."
        if self.reply is None:
            yield _line(harmless(gone or f"asking {self.url} ..."))
            return
        worker, memory = self.reply.worker, self.reply.worker.memory
        state, model = "gone" if gone else worker.state, (harmless(worker.model), "bold")
        up = f"  up {timedelta(seconds=min(worker.uptime_s, 1e9) // 1)}  "
        yield _line((state, _STYLES[state]), "  ", model, up, (self.url, "dim"))
        counts = f"{worker.running:,} running, {worker.waiting:,} waiting, {worker.slots:,} slots"
        held = _of(memory.resident_bytes, memory.planned_bytes + worker.kept.memory_bytes)
        yield _line((harmless(gone), "red") if gone else f"{counts}, memory {held} planned")
        # Behind a reason, what was seen last.
        yield Styled(Group(*_parts(self.reply, options)), "dim" if gone else "")


def _parts(reply: LiveReply, options: ConsoleOptions) -> Iterator[RenderableType]:
    """Figures, then requests, which come first; the log keeps a third, and gets what is left."""
    width, room = options.max_width, options.height or sys.maxsize
    signs = _ASCII if options.ascii_only else _BLOCKS
    figures = list(_figures(reply, width, *signs))[: 2 if room < 12 else None]
    room -= 2 + len(figures)
    kept = min(room // 3, 2 + len(reply.log)) if room >= 12 else 0
    most = max(1, room - kept - 2)
    live = reply.data if len(reply.data) <= most else reply.data[: most - 1]
    room -= 2 + min(len(reply.data), most)
    ended = reply.recent[: max(0, room - kept - 2)]
    room -= 2 + len(ended) if ended else 0
    yield from (*figures, Text())
    heads = "state,tokens,tok/s,cached,wait,age,,route"
    yield _table(width, heads, (_row(each, signs[0]) for each in live))
    if len(live) < len(reply.data):
        yield _line((f"  … and {len(reply.data) - len(live):,} more", "dim"))
    if ended:
        heads, rows = "ended,tokens,tok/s,cached,first,took,cache,route", map(_row, ended)
        yield from (Text(), _table(width, heads, rows, _ENDED_WIDTHS))
    if reply.log and room > 2:
        yield from (Text(), _line(("log", "dim")))
        for clock, level, *words in reply.log[-(room - 2) :]:
            told = (harmless(" ".join(filter(None, words))), _STYLES.get(level, ""))
            yield _line((harmless(clock.partition("T")[2][:8]), "dim"), " ", told)


def _figures(reply: LiveReply, width: int, blocks: str, levels: str) -> Iterator[Text]:
    cells, kept, totals = reply.worker.cells, reply.worker.kept, reply.worker.totals
    total, half = max(1, cells.total), (width - 9) // 2
    shares = (cells.live / total, "green"), (cells.cached / total, "cyan")
    told = _line((f"  {cells.live:,} live", "green"), (f", {cells.cached:,} cached", "cyan"))
    told.append(f", {cells.free:,} free", "dim")
    yield _line(("cells    ", "dim"), _bar(blocks, max(10, width - 9 - len(told)), *shares), told)
    line = _line(("tokens   ", "dim"))
    for column, verb, style in ((1, "read", "yellow"), (2, "written", "green")):
        values = [point[column] for point in reply.speeds]
        curve = _curve(levels, min(max(5, half - 20), 120), values)
        line.append(curve, style).append(f" {values[-1] if values else 0:,.1f} {verb}/s")
        line.pad_right(9 + half - len(line))
    yield line
    yield _line(
        ("totals   ", "dim"),
        f"{totals.requests:,} requests, ",
        (f"{totals.errors:,} errors", "red" if totals.errors else ""),
        f", {totals.prompt_tokens:,} read, {totals.cached_tokens:,} cached, "
        f"{totals.generated_tokens:,} written",
    )
    memory = _of(kept.memory_bytes, kept.memory_limit_bytes)
    disk = _of(kept.disk_bytes, kept.disk_limit_bytes)
    yield _line(("kept     ", "dim"), f"memory {memory}, disk {disk}")


def _row(each: LiveRequest | EndedRequest, blocks: str = "") -> Iterator[Text]:
    """How far it is, in its prompt and then in what it may write; or how it ended."""
    bar, count, speed = Text(), 1, each.tokens_per_second
    if isinstance(each, EndedRequest):
        state, seconds = each.outcome, (each.first_token_s, each.duration_s)
        tokens = f"{each.prompt_tokens:,} + {each.generated_tokens:,}"
        bar = Text(harmless(each.cache_reason or ""))
    else:
        state, count, seconds = each.state, each.sequences, (each.wait_s, each.age_s)
        done, most = each.read_tokens, each.prompt_tokens
        if state == "writing":
            done, most = each.generated_tokens, each.max_tokens
        tokens = f"{done:,} of {most:,}" if count else "made ready"
        bar = _bar(blocks, 10, (done / max(1, most), _STYLES[state]))
    yield Text(harmless(each.id) + (f" x {count}" if count > 1 else ""))
    yield Text(state, _STYLES.get(state, ""))
    yield from map(
        Text, (tokens, "" if speed is None else f"{speed:,.1f}", f"{each.cached_tokens:,}")
    )
    for took in seconds:
        yield Text("" if took is None else f"{took:.2f} s" if took < 10 else f"{took:,.0f} s")
    yield from (bar, Text(harmless(each.route)))


def _table(
    width: int, heads: str, rows: Iterable[Iterable[Text]], widths: Sequence[int] = _WIDTHS
) -> Table:
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("request", ratio=1, no_wrap=True)
    room = width - _FIRST
    for head, size in zip(heads.split(","), widths, strict=True):
        room -= abs(size) + 1
        if room >= 0:
            side = "right" if size < 0 else "left"
            table.add_column(head, width=abs(size), justify=side, no_wrap=True)
    for row in rows:
        table.add_row(*islice(row, len(table.columns)))
    return table


def _of(held: int, most: int) -> str:
    return f"{human_bytes(held)} of {human_bytes(most)}"


def _line(*parts: str | Text | tuple[str, str]) -> Text:
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _bar(blocks: str, width: int, *shares: tuple[float, str]) -> Text:
    """Of each (share, style) as many cells as it is of 1, and one at least of what is above 0."""
    text = Text()
    for block, (share, style) in zip(blocks, shares, strict=False):
        count = max(round(min(share, 1) * width), share > 0)
        text.append(block * min(count, width - len(text)), style)
    return text.append(blocks[-1] * (width - len(text)), "bright_black")


def _curve(levels: str, width: int, values: Sequence[float]) -> str:
    """The last `width` values against the largest of them; spaces where there are fewer."""
    shown = [max(0.0, value) for value in values[-width:]]
    most, top = max(shown, default=0.0) or 1.0, len(levels) - 1
    return "".join(levels[round(value / most * top)] for value in shown).rjust(width)
