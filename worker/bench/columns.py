"""Columns of a report's tables: a heading, what is below it, and how a cell is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from worker.bench.loading import Loading
from worker.bench.results import LevelQuality, LevelReport, Memory, Speed
from worker.bench.speed import Requests
from worker.bench.statistics import Figure, Latency
from worker.machine import human_bytes

NONE = "–"
Text = Callable[[LevelReport], str]


class Column(msgspec.Struct, frozen=True):
    """A heading, what is below it, and a level's cell as text."""

    title: str
    meaning: str
    text: Text


def name_column(recommended: str | None) -> Column:
    """The first one of each table."""
    meaning = "encoding; * is the reference, → the one to take here"
    return Column("level", meaning, lambda level: mark(level, recommended))


def mark(level: LevelReport, recommended: str | None) -> str:
    """A level's name, with a star for the reference and an arrow for the recommended one."""
    arrow = "→ " if level.quant == recommended else ""
    return f"{arrow}{level.quant}{'*' if level.is_reference else ''}"


def of_speed(text: Callable[[Speed], str]) -> Text:
    """A cell from what was measured of speed; a dash where nothing was."""
    return lambda level: text(level.speed) if level.speed else NONE


def of_memory(text: Callable[[Memory], str]) -> Text:
    """A cell from what was measured of memory."""
    return lambda level: text(level.memory) if level.memory else NONE


def of_quality(text: Callable[[LevelQuality], str]) -> Text:
    """A cell from what was measured of quality."""
    return lambda level: text(level.quality) if level.quality else NONE


def of_load(text: Callable[[Loading], str]) -> Text:
    """A cell from what was measured of loading."""
    return lambda level: text(level.load) if level.load else NONE


def of_requests(streams: int, text: Callable[[Requests], str], *, bare: bool = False) -> Text:
    """A cell from the requests of so many streams, over HTTP or in the bare loop."""

    def show(level: LevelReport) -> str:
        if level.speed is None:
            return NONE
        for request in level.speed.bare_requests if bare else level.speed.http_requests:
            if request.streams == streams:
                return text(request)
        return NONE

    return show


def rate(kind: str, streams: int, depth: int) -> Text:
    """A cell from one of the bare loop's tests."""

    def show(speed: Speed) -> str:
        for found in speed.rates:
            if (found.kind, found.streams, found.depth) == (kind, streams, depth):
                return per_s(found.per_s)
        return NONE

    return of_speed(show)


def plus_minus(value: float, error: float, digits: int) -> str:
    """`1.234 ±0.012`."""
    return f"{value:.{digits}f} ±{error:.{digits}f}"


def per_s(figure: Figure) -> str:
    """`5,485 ±3%`: a rate and its relative standard error."""
    digits = 0 if figure.mean >= 100 else 1 if figure.mean >= 10 else 2
    error = figure.error / figure.mean if figure.mean else 0.0
    return f"{figure.mean:,.{digits}f} ±{error:.0%}"


def divergence(value: float, error: float) -> str:
    """`0.00142 ±0.00019`; 0 where it is within what single precision loses."""
    return "0" if abs(value) < 1e-6 else plus_minus(value, error, 5)


def milliseconds(found: Latency | None) -> str:
    """p50, p95 and p99; those of too few values are dashes, left out at the end."""
    if found is None:
        return NONE
    values = [found.p50, *(value for value in (found.p95, found.p99) if value is not None)]
    return " ".join(f"{value * 1e3:.1f}" for value in values)


def nbytes(count: int | None) -> str:
    """Bytes, or a dash where nobody counts them."""
    return NONE if count is None else human_bytes(count)


def meanings(columns: Iterable[Column]) -> dict[str, str]:
    """Heading -> what is below it, each once."""
    return {column.title: column.meaning for column in columns}
