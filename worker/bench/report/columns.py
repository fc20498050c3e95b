"""The columns of a report: each figure once, for every table, the CSV and a comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec

from worker.bench.figures import Figure, Latency, divergence, milliseconds, per_s, plus_minus
from worker.bench.report import BenchReport, LevelReport
from worker.bench.sections import ProcessMemory, Quality, Requests
from worker.machine import human_bytes

NONE = "–"
# name in the CSV, heading, where: the two ways in which requests are measured
_WAYS = (("bare", "bare", "in the bare loop"), ("http", "HTTP", "over HTTP"))
_JOINED = {"http": ", where those that take less than 10 ms come several at a time"}
FigureValue = Figure | Latency | float | str | None
P = TypeVar("P")
# How a comparison judges a change: by the spread of repetitions; exactly; as memory, which differs
# from start to start; window by window, of the text's own tokens or of the divergence.
By = Literal["spread", "exact", "memory", "nll", "kld"]


class Column(msgspec.Struct, frozen=True):
    """One figure of a level.

    title    heading of the column, and the figure's name in a comparison
    meaning  what the figure is
    value    level -> name in the CSV -> what was measured; a comparison takes the first of them.
             Empty where nothing was measured
    text     level -> the cell
    by       how a comparison judges a change; None: it leaves the figure out
    unit     of the first value
    sizes    fields of `Sizes` that two reports must have in common, else they are not compared
    """

    title: str
    meaning: str
    value: Callable[[LevelReport], dict[str, FigureValue]]
    text: Callable[[LevelReport], str]
    by: By | None = None
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
        "level", "encoding; * is the reference, → the one to take here", _whole,
        lambda x: {"quant": x.quant, "is_reference": x.is_reference, "sha256": x.sha256},
        lambda x: mark(x, recommended),
    )  # fmt: skip
    parts = {
        "Size and loading": _size(),
        "Speed, tokens/s": _speed(report),
        "Latency, ms: p50, p95, p99": _latency(report),
        "Memory": _memory(),
    }
    if any(level.drafts for level in report.levels):
        parts["Draft model"] = _drafts(report)
    if any(level.quality for level in report.levels):
        parts["Quality"] = _quality()
    known = {column.title: column for columns in parts.values() for column in columns}
    wanted = ("size", "bits", "read", "write", "HTTP", "TTFT HTTP", "peak", "drafts", "KLD",
              "same top", "flips")  # fmt: skip
    summary = [known[title] for title in wanted if title in known]
    return [
        Table(title, [name, *columns]) for title, columns in {"Summary": summary, **parts}.items()
    ]


def mark(level: LevelReport, recommended: str | None) -> str:
    """A level's name, with a star for the reference and an arrow for the recommended one."""
    arrow = "→ " if level.quant == recommended else ""
    return f"{arrow}{level.quant}{'*' if level.is_reference else ''}"


def _column(
    title: str, meaning: str, part: Callable[[LevelReport], P | None],
    value: Callable[[P], dict[str, FigureValue]], text: Callable[[P], str],
    by: By | None = None, unit: str = "", *sizes: str,
) -> Column:  # fmt: skip
    """A column of a part of the level; without that part no value, and a dash as the cell."""

    def values(level: LevelReport) -> dict[str, FigureValue]:
        found = part(level)
        return {} if found is None else value(found)

    def cell(level: LevelReport) -> str:
        found = part(level)
        return NONE if found is None else text(found)

    return Column(title, meaning, values, cell, by, unit, sizes)


def _whole(level: LevelReport) -> LevelReport:
    return level


def _size() -> list[Column]:
    return [
        _column("size", "bytes of the file", _whole, lambda x: {"size_bytes": x.size_bytes},
                lambda x: human_bytes(x.size_bytes), "exact", "bytes"),
        _column("bits", "bits per weight", _whole,
                lambda x: {"bpw": x.bpw, "n_params": x.n_params}, lambda x: f"{x.bpw:.3f}"),
        _column("w/o embeddings", "bits per weight, without embedding and output matrices", _whole,
                lambda x: {"bpw_without_embeddings": x.bpw_without_embeddings},
                lambda x: f"{x.bpw_without_embeddings:.3f}"),
        _column("metadata", "general.file_type", _whole,
                lambda x: {"file_type": x.file_type, "encoding": x.encoding},
                lambda x: x.file_type or NONE),
        _column("mix", "encodings of the tensors by share of the weights", _whole, lambda _: {},
                lambda x: ", ".join(f"{share:.1%} {name}" for name, share in x.mix.items())),
        _column("cold", "seconds until ready, from the disk", lambda x: x.load and x.load.cold,
                lambda f: {"load_cold_s": f}, lambda f: f"{f.mean:.2f}"),
        _column("warm", "seconds until ready, from the system's cache",
                lambda x: x.load and x.load.warm,
                lambda f: {"load_warm_s": f}, lambda f: f"{f.mean:.2f}", "spread", "s"),
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
    for way, label, where in _WAYS:
        found += [
            _column(
                f"{label}{_by(n)}", f"{_together(n)}, tokens/s of requests {where}",
                _requests(way, n), lambda r, way=way, n=n: {f"{way}_x{n}_tokens_per_s": r.per_s},
                lambda r: per_s(r.per_s), "spread" if way == "http" else None,
                "tokens/s", "prompt", "decode",
            )
            for n in counts
        ]  # fmt: skip
    found.append(
        _column(
            "GB/s", "weights read while writing, and their share of what this machine reads",
            report.bandwidth, lambda r: {"gb_per_s": r[0], "bandwidth_share": r[1]},
            lambda r: f"{r[0]:.1f}" + ("" if r[1] is None else f" ({r[1]:.0%})"),
        )
    )  # fmt: skip
    return found


def _latency(report: BenchReport) -> list[Column]:
    def of(way: str, n: int, title: str, meaning: str, field: str) -> Column:
        return _column(
            title, meaning, _requests(way, n),
            lambda r: {f"{way}_x{n}_{field}": getattr(r, field)},
            lambda r: milliseconds(getattr(r, field)),
        )  # fmt: skip

    found: list[Column] = []
    for n in sorted({1, report.streams}):
        for way, label, where in _WAYS:
            name, between = (
                f"{label}{_by(n)}",
                f"ms between tokens of a stream, {n} of them, {where}{_JOINED.get(way, '')}",
            )
            first = f"ms to the first token of {n} requests {where}"
            found.append(of(way, n, f"TTFT {name}", first, "ttft"))
            found.append(of(way, n, f"ITL {name}", between, "itl"))
    return found


def _memory() -> list[Column]:
    def process(title: str, meaning: str, server: str, field: str, by: By | None = None) -> Column:
        """A process's memory: the bare loop's, or where `server` says so the server's."""

        def part(level: LevelReport) -> ProcessMemory | None:
            section = level.serve if server else level.speed
            return section and section.memory

        return _column(title, meaning, part, lambda m: {f"{server}{field}": getattr(m, field)},
                       lambda m: human_bytes(getattr(m, field)), by, "bytes")  # fmt: skip

    def needs(title: str, meaning: str, field: str, text: Callable[[int], str]) -> Column:
        return _column(title, meaning, lambda x: x.speed and x.speed.needs,
                       lambda n: {field: getattr(n, field)},
                       lambda n: text(getattr(n, field)))  # fmt: skip

    return [
        process("peak", "largest resident memory of the bare loop's process (VmHWM)", "",
                "peak_rss", "memory"),
        process("PSS", "its proportional share at the end", "", "pss"),
        process("peak HTTP", "largest resident memory of the server's process", "server_",
                "peak_rss", "memory"),
        process("PSS HTTP", "its proportional share at the end", "server_", "pss"),
        _column("device", "buffers outside of the host's memory",
                lambda x: x.speed and x.speed.buffers,
                lambda b: {"device_bytes": b.device_bytes}, lambda b: human_bytes(b.device_bytes)),
        needs("planned", "what `worker plan` says for that context and those streams",
              "planned_bytes", human_bytes),
        needs("cells", "context that it was measured with, for all streams", "context",
              lambda count: f"{count:,}"),
        needs("KV/token", "bytes of the KV cache for one token", "kv_bytes_per_token", human_bytes),
        needs("context", "longest context whose worker fits this machine now", "max_context",
              lambda count: f"{count:,}"),
    ]  # fmt: skip


def _quality() -> list[Column]:
    def of(
        title: str, meaning: str, names: str, text: Callable[[Quality], str], by: By | None = None
    ) -> Column:
        """Fields of the quality, separated by spaces."""
        return _column(title, meaning, lambda x: x.quality,
                       lambda q: {name: getattr(q, name) for name in names.split()}, text, by,
                       "nats")  # fmt: skip

    return [
        of("PPL", "perplexity of the text", "ppl ppl_error ppl_reference tokens windows window",
           lambda q: plus_minus(q.ppl, q.ppl_error, 4), "nll"),
        of("ln ratio", "ln of the perplexity's ratio to the reference's",
           "ln_ppl_ratio ln_ppl_ratio_error",
           lambda q: plus_minus(q.ln_ppl_ratio, q.ln_ppl_ratio_error, 5)),
        of("KLD", "mean KL divergence from the reference, nats; its error by windows",
           "kld_mean kld_mean_error kld_mean_error_windows kld_sampling_error",
           lambda q: divergence(q.kld_mean, q.kld_mean_error_windows),
           "kld"),
        of("50, 90, 95 %", "so many of the tokens diverge by less", "kld_median kld_p90 kld_p95",
           lambda q: f"{abs(q.kld_median):.5f} {q.kld_p90:.5f} {q.kld_p95:.5f}"),
        of("99, 99.9, 100 %", "so many of the tokens diverge by less", "kld_p99 kld_p999 kld_max",
           lambda q: f"{q.kld_p99:.4f} {q.kld_p999:.4f} {q.kld_max:.4f}"),
        of("same top", "tokens with the same likeliest one", "same_top same_top_error",
           lambda q: f"{q.same_top:.1%} ±{q.same_top_error:.1%}"),
        of("Δp", "mean change of the probability of the text's own tokens",
           "dp_mean dp_mean_error", lambda q: f"{q.dp_mean:+.3%} ±{q.dp_mean_error:.3%}"),
        of("Δp RMS", "root of its mean square", "dp_rms dp_rms_error",
           lambda q: f"{q.dp_rms:.2%} ±{q.dp_rms_error:.2%}"),
        _column("flips", "multiple-choice answers that turned right or wrong",
                lambda x: x.quality and x.quality.choices,
                lambda c: {"flips": c.flips, "flips_error": c.flips_error},
                lambda c: f"{c.flips:.1%}"),
        _column("right", "multiple-choice answers that are right",
                lambda x: x.quality and x.quality.choices, lambda c: {"accuracy": c.accuracy},
                lambda c: f"{c.accuracy:.0%} ±{c.accuracy_error:.0%}"),
        _column("greedy", "first token of a greedy text that is another one, median",
                lambda x: x.quality and x.quality.greedy,
                lambda g: {"greedy_first_difference": g.median_first_difference},
                lambda g: "all the same" if g.identical == g.prompts
                else f"{g.median_first_difference:.0f} of {g.tokens}"),
    ]  # fmt: skip


def _drafts(report: BenchReport) -> list[Column]:
    return [
        _column(f"drafts{_by(n)}", f"{_together(n)}, of the speed without; accepted draft tokens",
                lambda x, n=n: x.drafts and x.drafts.of(n),
                lambda d, n=n: {f"drafts_x{n}_gain": d.gain, f"drafts_x{n}_tokens_s": d.drafted},
                lambda d: f"{d.gain:.2f} ({d.right} of {d.guessed})")
        for n in sorted({1, report.streams})
    ]  # fmt: skip


def _by(streams: int) -> str:
    return f" x{streams}" if streams > 1 else ""


def _together(streams: int) -> str:
    return f"{streams} streams together" if streams > 1 else "one stream"


def _rate(title: str, meaning: str, kind: str, streams: int, depth: int) -> Column:
    return _column(
        title, meaning, lambda x: x.rate(kind, streams, depth),
        lambda f: {f"{kind}_x{streams}_at_{depth}_tokens_per_s": f}, per_s, "spread", "tokens/s",
        "prompt" if kind == "prefill" else "decode",
    )  # fmt: skip


def _requests(way: str, streams: int) -> Callable[[LevelReport], Requests | None]:
    """The requests of so many streams, over HTTP or in the bare loop."""

    def find(level: LevelReport) -> Requests | None:
        bare = level.speed.requests if level.speed else ()
        requests = bare if way == "bare" else level.http()
        return next((request for request in requests if request.streams == streams), None)

    return find
