"""The columns of a report: each figure once, for every table and a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

import msgspec

from worker.bench.figures import Figure, divergence, milliseconds, per_s, plus_minus
from worker.bench.report import BenchReport, LevelReport
from worker.bench.sections import MemoryNeeds, ProcessMemory, Quality, Requests
from worker.machine import human_bytes

NONE = "–"
# heading, where: the two ways in which requests are measured
_WAYS = (("bare", "in the bare loop"), ("HTTP", "over HTTP"))
_JOINED = {"HTTP": ", where those that take less than 10 ms come several at a time"}
P = TypeVar("P")
# How a comparison judges a change: by the spread of repetitions; exactly; as memory, which differs
# from start to start; window by window, of the text's own tokens or of the divergence.
By = Literal["spread", "exact", "memory", "nll", "kld"]


class Column(msgspec.Struct, frozen=True):
    """One figure of a level.

    title    heading of the column, and the figure's name in a comparison
    meaning  what the figure is
    text     level -> the cell
    by       how a comparison judges a change; None: it leaves the figure out
    value    level -> what a comparison takes; None where nothing was measured
    unit     of the value
    sizes    fields of `Sizes` that two reports must have in common, else they are not compared
    """

    title: str
    meaning: str
    text: Callable[[LevelReport], str]
    by: By | None = None
    value: Callable[[LevelReport], Figure | float | None] = lambda _: None
    unit: str = ""
    sizes: tuple[str, ...] = ()


class Table(msgspec.Struct, frozen=True):
    """A title and columns; the rows are the report's levels."""

    title: str
    columns: list[Column]


def tables(report: BenchReport) -> list[Table]:
    """All tables for which the report has something to show, the summary first."""
    recommended = report.verdict.recommended
    name = _column(
        "level",
        "encoding; * marks the reference, → the level to take here",
        _whole,
        lambda x: mark(x, recommended),
    )
    parts = {
        "Size and loading": _size(),
        "Speed, tokens/s": _speed(report),
        "Latency, ms: p50, p95, p99": _latency(report),
        "Memory": _memory(),
    }
    if any(level.quality for level in report.levels):
        parts["Quality"] = _quality()
    known = {column.title: column for columns in parts.values() for column in columns}
    wanted = "size, bits, read, write, HTTP, TTFT HTTP, peak, KLD, same top, flips".split(", ")
    summary = [known[title] for title in wanted if title in known]
    return [
        Table(title, [name, *columns]) for title, columns in {"Summary": summary, **parts}.items()
    ]


def fitting(
    columns: list[Column], levels: Sequence[LevelReport], width: int, gap: int = 1
) -> Iterator[list[Column]]:
    """Parts of a table's columns that fit a line, each beginning with the first column.

    width: characters of a line; gap: of them, those that a cell has besides its text
    """
    name, *rest = columns

    def wide(column: Column) -> int:
        return gap + max(map(len, (column.title, *map(column.text, levels))))

    while rest:
        room, count = width - wide(name), 0
        while count < len(rest) and (not count or room >= wide(rest[count])):
            room -= wide(rest[count])
            count += 1
        yield [name, *rest[:count]]
        rest = rest[count:]


def mark(level: LevelReport, recommended: str | None) -> str:
    """A level's name, with a star for the reference and an arrow for the recommended one."""
    arrow = "→ " if level.quant == recommended else ""
    return f"{arrow}{level.quant}{'*' if level.is_reference else ''}"


def _column(
    title: str, meaning: str, part: Callable[[LevelReport], P | None], text: Callable[[P], str],
    by: By | None = None, value: Callable[[P], Figure | float] | None = None, unit: str = "",
    sizes: tuple[str, ...] = (),
) -> Column:  # fmt: skip
    """A column of a part of the level; without that part no value, and a dash as the cell."""

    def number(level: LevelReport) -> Figure | float | None:
        found = part(level)
        return None if found is None or value is None else value(found)

    def cell(level: LevelReport) -> str:
        found = part(level)
        return NONE if found is None else text(found)

    return Column(title, meaning, cell, by, number, unit, sizes)


def _whole(level: LevelReport) -> LevelReport:
    return level


def _size() -> list[Column]:
    return [
        _column("size", "bytes of the file", _whole, lambda x: human_bytes(x.size_bytes), "exact",
                lambda x: x.size_bytes, "bytes"),
        _column("bits", "bits per weight", _whole, lambda x: f"{x.bpw:.3f}"),
        _column("w/o embeddings", "bits per weight, without embedding and output matrices", _whole,
                lambda x: f"{x.bpw_without_embeddings:.3f}"),
        _column("metadata", "general.file_type", _whole, lambda x: x.file_type or NONE),
        _column("mix", "encodings of the tensors by share of the weights", _whole,
                lambda x: ", ".join(f"{share:.1%} {name}" for name, share in x.mix.items())),
        _column("cold", "seconds until ready, from the disk", lambda x: x.load and x.load.cold,
                lambda f: f"{f.mean:.2f}"),
        _column("warm", "seconds until ready, from the system's cache",
                lambda x: x.load and x.load.warm, lambda f: f"{f.mean:.2f}", "spread",
                lambda f: f, "s"),
    ]  # fmt: skip


def _speed(report: BenchReport) -> list[Column]:
    found: list[Column] = []
    counts = sorted({1, report.streams})
    for depth in sorted({0, report.sizes.depth}):
        at, after = (f" @{depth}", f" after {depth} tokens of context") if depth else ("", "")
        meaning = f"a prompt of {report.sizes.prompt} tokens{after}, tokens/s, bare loop"
        found.append(_rate(f"read{at}", meaning, "prefill", 1, depth))
        for streams in counts:
            meaning = f"{_together(streams)}{after}, tokens/s, bare loop"
            found.append(_rate(f"write{_by(streams)}{at}", meaning, "decode", streams, depth))
    for way, where in _WAYS:
        found += [
            _column(
                f"{way}{_by(n)}", f"{_together(n)}, tokens/s of requests {where}",
                _requests(way, n), lambda r: per_s(r.per_s), "spread" if way == "HTTP" else None,
                lambda r: r.per_s, "tokens/s", ("prompt", "decode"),
            )
            for n in counts
        ]  # fmt: skip
    found.append(
        _column(
            "GB/s",
            "weights read while writing, and their share of what this machine reads",
            report.bandwidth,
            lambda r: f"{r[0]:.1f}" + ("" if r[1] is None else f" ({r[1]:.0%})"),
        )
    )
    return found


def _latency(report: BenchReport) -> list[Column]:
    found: list[Column] = []
    for n in sorted({1, report.streams}):
        for way, where in _WAYS:
            name, between = (
                f"{way}{_by(n)}",
                f"ms between tokens of a stream, {n} of them, {where}{_JOINED.get(way, '')}",
            )
            first = f"ms to the first token {where}{f', {n} requests at once' if n > 1 else ''}"
            requests = _requests(way, n)
            found += [
                _column(f"TTFT {name}", first, requests, lambda r: milliseconds(r.ttft)),
                _column(f"ITL {name}", between, requests, lambda r: milliseconds(r.itl)),
            ]
    return found


def _memory() -> list[Column]:
    def loop(level: LevelReport) -> ProcessMemory | None:
        return level.speed and level.speed.memory

    def server(level: LevelReport) -> ProcessMemory | None:
        return level.serve and level.serve.memory

    def needs(title: str, meaning: str, text: Callable[[MemoryNeeds], str]) -> Column:
        return _column(title, meaning, lambda x: x.speed and x.speed.needs, text)

    return [
        _column("peak", "largest resident memory of the bare loop's process (VmHWM)", loop,
                lambda m: human_bytes(m.peak_rss), "memory", lambda m: m.peak_rss, "bytes"),
        _column("PSS", "its proportional share at the end", loop, lambda m: human_bytes(m.pss)),
        _column("peak HTTP", "largest resident memory of the server's process", server,
                lambda m: human_bytes(m.peak_rss), "memory", lambda m: m.peak_rss, "bytes"),
        _column("PSS HTTP", "its proportional share at the end", server,
                lambda m: human_bytes(m.pss)),
        _column("device", "buffers outside of the host's memory",
                lambda x: x.speed and x.speed.buffers, lambda b: human_bytes(b.device_bytes)),
        needs("planned", "what `worker plan` says for that context and those streams",
              lambda n: human_bytes(n.planned_bytes)),
        needs("cells", "context that it was measured with, for all streams",
              lambda n: f"{n.context:,}"),
        needs("KV/token", "bytes of the KV cache for one token",
              lambda n: human_bytes(n.kv_bytes_per_token)),
        needs("context", "longest context whose worker fits this machine now",
              lambda n: f"{n.max_context:,}"),
    ]  # fmt: skip


def _quality() -> list[Column]:
    def of(
        title: str,
        meaning: str,
        text: Callable[[Quality], str],
        by: By | None = None,
        value: Callable[[Quality], float] | None = None,
    ) -> Column:
        return _column(title, meaning, lambda x: x.quality, text, by, value, "nats")

    return [
        _column("PPL", "perplexity of the text", lambda x: x.quality,
                lambda q: plus_minus(q.ppl, q.ppl_error, 4), "nll", lambda q: q.ppl),
        of("ln ratio", "ln of the perplexity's ratio to the reference's",
           lambda q: plus_minus(q.ln_ppl_ratio, q.ln_ppl_ratio_error, 5)),
        of("KLD", "mean KL divergence from the reference, nats; its error by windows",
           lambda q: divergence(q.kld_mean, q.kld_mean_error_windows), "kld",
           lambda q: q.kld_mean),
        of("50, 90, 95 %", "so many of the tokens diverge by less",
           lambda q: f"{abs(q.kld_median):.5f} {q.kld_p90:.5f} {q.kld_p95:.5f}"),
        of("99, 99.9, 100 %", "so many of the tokens diverge by less",
           lambda q: f"{q.kld_p99:.4f} {q.kld_p999:.4f} {q.kld_max:.4f}"),
        of("same top", "tokens with the same likeliest one",
           lambda q: f"{q.same_top:.1%} ±{q.same_top_error:.1%}"),
        of("Δp", "mean change of the probability of the text's own tokens",
           lambda q: f"{q.dp_mean:+.3%} ±{q.dp_mean_error:.3%}"),
        of("Δp RMS", "root of its mean square",
           lambda q: f"{q.dp_rms:.2%} ±{q.dp_rms_error:.2%}"),
        _column("flips", "multiple-choice answers that turned right or wrong",
                lambda x: x.quality and x.quality.choices, lambda c: f"{c.flips:.1%}"),
        _column("right", "multiple-choice answers that are right",
                lambda x: x.quality and x.quality.choices,
                lambda c: f"{c.accuracy:.0%} ±{c.accuracy_error:.0%}"),
        _column("greedy", "first token of a greedy text that is another one, median",
                lambda x: x.quality and x.quality.greedy,
                lambda g: "all the same" if g.identical == g.prompts
                else f"{g.median_first_difference:.0f} of {g.tokens}"),
    ]  # fmt: skip


def _by(streams: int) -> str:
    return f" x{streams}" if streams > 1 else ""


def _together(streams: int) -> str:
    return f"{streams} streams together" if streams > 1 else "one stream"


def _rate(title: str, meaning: str, kind: str, streams: int, depth: int) -> Column:
    return _column(
        title, meaning, lambda x: x.rate(kind, streams, depth), per_s, "spread", lambda f: f,
        "tokens/s", ("prompt" if kind == "prefill" else "decode",),
    )  # fmt: skip


def _requests(way: str, streams: int) -> Callable[[LevelReport], Requests | None]:
    """The requests of so many streams, over HTTP or in the bare loop."""

    def find(level: LevelReport) -> Requests | None:
        bare = level.speed.requests if level.speed else ()
        requests = bare if way == "bare" else level.http()
        return next((request for request in requests if request.streams == streams), None)

    return find
