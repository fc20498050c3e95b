"""The columns of a report's table, in one place for the terminal, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from worker.bench.loading import Loading
from worker.bench.results import LevelQuality, LevelReport, Memory, Report, Speed
from worker.bench.speed import Requests
from worker.bench.statistics import Figure
from worker.model.memory import human_bytes

NONE = "–"
Text = Callable[[LevelReport], str]


class Column(msgspec.Struct, frozen=True):
    """A heading, what is below it, and a level's cell as text."""

    title: str
    meaning: str
    text: Text


def columns(report: Report) -> list[Column]:
    """All columns for which the report has something to show."""
    chosen = report.verdict.recommended
    made = _size(chosen) + _speed(report) + _memory()
    if any(level.quality for level in report.levels):
        made += _quality()
    return made


def mark(level: LevelReport, recommended: str | None) -> str:
    """A level's name, with a star for the reference and an arrow for the recommended one."""
    arrow = "→ " if level.quant == recommended else ""
    return f"{arrow}{level.quant}{'*' if level.is_reference else ''}"


def _size(recommended: str | None) -> list[Column]:
    return [
        Column("level", "encoding; * is the reference, → the one to take here",
               lambda level: mark(level, recommended)),
        Column("size", "bytes of the file", lambda level: human_bytes(level.size_bytes)),
        Column("bits", "bits per weight", lambda level: f"{level.bpw:.2f}"),
        Column("bits w/o emb.", "bits per weight, without the embedding and output matrices",
               lambda level: f"{level.bpw_without_embeddings:.2f}"),
    ]  # fmt: skip


def _speed(report: Report) -> list[Column]:
    n, sizes = report.streams, report.sizes
    found = [
        Column("cold", "seconds until ready, from the disk",
               _of_load(lambda x: NONE if x.cold is None else f"{x.cold.mean:.2f}")),
        Column("warm", "seconds until ready, from the system's cache",
               _of_load(lambda x: f"{x.warm.mean:.2f}")),
        Column("read", f"tokens/s of a prompt of {sizes.prompt} tokens, bare loop",
               _of_speed(lambda s: rate_text(s, "prefill", 1, 0))),
        Column("write", "tokens/s of one stream, bare loop",
               _of_speed(lambda s: rate_text(s, "decode", 1, 0))),
    ]  # fmt: skip
    if sizes.depth:
        found += [
            Column(f"read @{sizes.depth}", f"the same after {sizes.depth} tokens of context",
                   _of_speed(lambda s: rate_text(s, "prefill", 1, sizes.depth))),
            Column(f"write @{sizes.depth}", f"the same after {sizes.depth} tokens of context",
                   _of_speed(lambda s: rate_text(s, "decode", 1, sizes.depth))),
        ]  # fmt: skip
    if n > 1:
        found.append(
            Column(f"write x{n}", f"tokens/s of {n} streams together, bare loop",
                   _of_speed(lambda s: rate_text(s, "decode", n, 0)))
        )  # fmt: skip
    for streams in sorted({1, n}):
        suffix = f" x{streams}" if streams > 1 else ""
        found += [
            Column(f"HTTP{suffix}", f"tokens/s of {streams} streams together over HTTP",
                   _of_http(streams, lambda r: per_s(r.per_s))),
            Column(f"TTFT{suffix}", "ms to the first token over HTTP, p50 and p95", _of_http(
                streams, lambda r: milliseconds(r.ttft and (r.ttft.p50, r.ttft.p95)))),
            Column(f"ITL{suffix}", "ms between tokens over HTTP, p50, p95 and p99", _of_http(
                streams, lambda r: milliseconds(r.itl and (r.itl.p50, r.itl.p95, r.itl.p99)))),
        ]  # fmt: skip
    return found


def _memory() -> list[Column]:
    return [
        Column("peak", "largest resident memory of the bare loop's process",
               _of_memory(lambda m: _bytes(m.peak_rss))),
        Column("peak HTTP", "largest resident memory of the server's process",
               _of_memory(lambda m: _bytes(m.server_peak_rss))),
        Column("context", "longest context whose worker fits this machine now",
               _of_memory(lambda m: f"{m.max_context:,}")),
        Column("GB/s", "weights read while writing, and their share of what this machine reads",
               _of_speed(_gb_per_s)),
    ]  # fmt: skip


def _quality() -> list[Column]:
    return [
        Column("PPL", "perplexity of the text",
               _of_quality(lambda q: plus_minus(q.ppl, q.ppl_error, 4))),
        Column("KLD", "mean KL divergence from the reference, nats; its error by windows",
               _of_quality(lambda q: divergence(q.kld_mean, q.kld_mean_error_windows))),
        Column("KLD 99%", "99 % of the tokens diverge by less",
               _of_quality(lambda q: f"{q.kld_p99:.4f}")),
        Column("same top", "share of tokens with the same likeliest one",
               _of_quality(lambda q: f"{q.same_top:.1%} ±{q.same_top_error:.1%}")),
        Column("Δp RMS", "change of the probability of the text's own tokens",
               _of_quality(lambda q: f"{q.dp_rms:.2%}")),
        Column("flips", "multiple-choice answers that turned right or wrong",
               _of_quality(lambda q: f"{q.choices.flips:.1%}")),
        Column("right", "multiple-choice answers that are right",
               _of_quality(lambda q: f"{q.choices.accuracy:.0%}")),
        Column("greedy", "first token of a greedy text that is another one, median",
               _of_quality(_greedy)),
    ]  # fmt: skip


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


def milliseconds(seconds: Iterable[float | None] | None) -> str:
    """`1.2 3.4 –`."""
    values = list(seconds or ())
    return " ".join(NONE if v is None else f"{v * 1e3:.1f}" for v in values) or NONE


def rate_text(speed: Speed, kind: str, streams: int, depth: int) -> str:
    """The figure of one of the bare loop's tests."""
    for rate in speed.rates:
        if (rate.kind, rate.streams, rate.depth) == (kind, streams, depth):
            return per_s(rate.per_s)
    return NONE


def _of_speed(text: Callable[[Speed], str]) -> Text:
    return lambda level: text(level.speed) if level.speed else NONE


def _of_memory(text: Callable[[Memory], str]) -> Text:
    return lambda level: text(level.memory) if level.memory else NONE


def _of_quality(text: Callable[[LevelQuality], str]) -> Text:
    return lambda level: text(level.quality) if level.quality else NONE


def _of_load(text: Callable[[Loading], str]) -> Text:
    return lambda level: text(level.load) if level.load else NONE


def _of_http(streams: int, text: Callable[[Requests], str]) -> Text:
    def show(level: LevelReport) -> str:
        for request in level.speed.http_requests if level.speed else ():
            if request.streams == streams:
                return text(request)
        return NONE

    return show


def _bytes(count: int | None) -> str:
    return NONE if count is None else human_bytes(count)


def _gb_per_s(speed: Speed) -> str:
    share = "" if speed.bandwidth_share is None else f" ({speed.bandwidth_share:.0%})"
    return f"{speed.gb_per_s:.1f}{share}"


def _greedy(quality: LevelQuality) -> str:
    greedy = quality.greedy
    if greedy.identical == greedy.prompts:
        return "all the same"
    return f"{greedy.median_first_difference:.0f} of {greedy.tokens}"
