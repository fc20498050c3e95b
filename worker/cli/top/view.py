"""What a worker does, drawn so that it fits a terminal. What came over the network goes through
`harmless` into a Text: it must neither control the terminal nor be read as markup."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta

from rich.console import ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from worker.log import harmless
from worker.machine import human_bytes
from worker.requests.views import EndedRequest, LiveReply, LiveRequest

_STYLES = {
    "ready": "green", "draining": "yellow", "failed": "red", "gone": "red", "error": "red",
    "waiting": "yellow", "reading": "cyan", "writing": "green", "warning": "yellow",
}  # fmt: skip
# Width, negative: to the right; fixed, so that rows do not jump. What does not fit is left out.
_COLUMNS = {"state": 9, "tokens": -15, "tok/s": -7, "cached": -8, "wait": -7, "age": -7,
            "cache": 14, "route": 25}  # fmt: skip
_FIRST, _LOW = 10, 12  # of the first column at least; lines of a terminal without a log


def view(
    url: str, reply: LiveReply | None, options: ConsoleOptions, gone: str = ""
) -> Iterator[RenderableType]:
    """The lines of what was seen last, None: nothing yet; at most as many as `options` have room
    for. The log gets a third of what the figures leave. gone: why the worker does not answer"""
    gone = harmless(gone)
    if reply is None:
        yield _line(gone or f"asking {url} ...")
        return
    worker, height = reply.worker, options.height or sys.maxsize
    state, model = "gone" if gone else worker.state, (harmless(worker.model), "bold")
    up = f"  up {timedelta(seconds=min(worker.uptime_s, 1e9) // 1)}  "
    yield _line((state, _STYLES[state]), "  ", model, up, (url, "dim"))
    first, *figures = list(_figures(reply))[: 3 if height < _LOW else None]
    yield _line((gone, "red") if gone else first)
    yield from (*map(_line, figures), Text())
    room = height - 4 - len(figures)
    log = reply.log[-(room // 3) :] if height >= _LOW else []
    most = max(1, room - len(log) - bool(log))
    live = reply.data if len(reply.data) <= most else reply.data[: most - 1]
    yield _table(options.max_width, [*live, *reply.recent[: max(0, most - len(reply.data))]])
    if len(live) < len(reply.data):
        yield _line((f"  … and {len(reply.data) - len(live):,} more", "dim"))
    yield from [Text()] if log else []
    for clock, level, *words in log:
        told = (harmless(" ".join(filter(None, words))), _STYLES.get(level, ""))
        yield _line((harmless(clock.partition("T")[2][:8]), "dim"), " ", told)


def _figures(reply: LiveReply) -> Iterator[str]:
    worker, (_, read, written) = reply.worker, reply.speeds[-1] if reply.speeds else (0, 0.0, 0.0)
    memory, cells, kept, totals = worker.memory, worker.cells, worker.kept, worker.totals
    held = _of(memory.resident_bytes, memory.planned_bytes + kept.memory_bytes)
    counts = f"{worker.running:,} running, {worker.waiting:,} waiting, {worker.slots:,} slots"
    yield f"{counts}, memory {held} planned"
    yield f"cells   {cells.live:,} live, {cells.cached:,} cached, {cells.free:,} free"
    yield f"speed   {read:,.1f} read/s, {written:,.1f} written/s"
    tokens = f"{totals.prompt_tokens:,} read, {totals.cached_tokens:,} cached"
    ended = f"{totals.requests:,} requests, {totals.errors:,} errors"
    yield f"totals  {ended}, {tokens}, {totals.generated_tokens:,} written"
    disk = _of(kept.disk_bytes, kept.disk_limit_bytes)
    yield f"cache   memory {_of(kept.memory_bytes, kept.memory_limit_bytes)}, disk {disk}"


def _table(width: int, requests: list[LiveRequest | EndedRequest]) -> Table:
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("request", ratio=1, no_wrap=True)
    room = width - _FIRST
    for head, size in _COLUMNS.items():
        room -= abs(size) + 1
        if room >= 0:
            side = "right" if size < 0 else "left"
            table.add_column(head, width=abs(size), justify=side, no_wrap=True)
    for each in requests:
        table.add_row(*_row(each)[: len(table.columns)])
    return table


def _row(each: LiveRequest | EndedRequest) -> list[Text]:
    """How far it is, in its prompt and then in what it may write; or how it ended."""
    if isinstance(each, EndedRequest):
        count, state, age, reason = 1, each.outcome, each.duration_s, each.cache_reason or ""
        tokens = f"{each.prompt_tokens:,} + {each.generated_tokens:,}"
    else:
        count, state, age, reason = each.sequences, each.state, each.age_s, ""
        done, most = each.read_tokens, each.prompt_tokens
        if state == "writing":
            done, most = each.generated_tokens, each.max_tokens
        tokens = f"{done:,} of {most:,}" if count else "made ready"
    name = harmless(each.id) + (f" x {count}" if count > 1 else "")
    speed = "" if each.tokens_per_second is None else f"{each.tokens_per_second:,.1f}"
    times = (f"{took:.2f} s" if took < 10 else f"{took:,.0f} s" for took in (each.wait_s, age))
    why = map(harmless, (reason, each.route))
    more = (tokens, speed, f"{each.cached_tokens:,}", *times, *why)
    return [Text(name), Text(state, _STYLES.get(state, "dim")), *map(Text, more)]


def _of(held: int, most: int) -> str:
    return f"{human_bytes(held)} of {human_bytes(most)}"


def _line(*parts: str | tuple[str, str]) -> Text:
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")
