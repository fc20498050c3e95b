"""The tables of a report: which columns stand beside each other."""

from __future__ import annotations

import msgspec

from worker.bench.columns import (
    NONE,
    Column,
    divergence,
    milliseconds,
    name_column,
    nbytes,
    of_load,
    of_memory,
    of_quality,
    of_requests,
    of_speed,
    per_s,
    plus_minus,
    rate,
)
from worker.bench.results import LevelQuality, Report, Speed
from worker.machine import human_bytes


class Table(msgspec.Struct, frozen=True):
    """A title and columns; the rows are the report's levels."""

    title: str
    columns: list[Column]


def tables(report: Report) -> list[Table]:
    """All tables for which the report has something to show, the summary first."""
    name = name_column(report.verdict.recommended)
    found = [
        Table("Summary", [name, *summary(report)]),
        Table("Size and loading", [name, *_size()]),
        Table("Speed, tokens/s", [name, *_speed(report)]),
        Table("Latency, ms: p50, p95, p99", [name, *_latency(report)]),
        Table("Memory", [name, *_memory()]),
    ]
    if any(level.quality for level in report.levels):
        found.append(Table("Quality", [name, *_quality()]))
    return found


def summary(report: Report) -> list[Column]:
    """What decides."""
    found = [
        Column("size", "bytes of the file", lambda level: human_bytes(level.size_bytes)),
        Column("bits", "bits per weight", lambda level: f"{level.bpw:.2f}"),
        Column("read", f"a prompt of {report.sizes.prompt} tokens, tokens/s, bare loop",
               rate("prefill", 1, 0)),
        Column("write", "one stream, tokens/s, bare loop", rate("decode", 1, 0)),
        Column("HTTP", "one stream, tokens/s, over HTTP",
               of_requests(1, lambda r: per_s(r.per_s))),
        Column("TTFT", "ms to the first token, over HTTP",
               of_requests(1, lambda r: milliseconds(r.ttft))),
        Column("peak", "largest resident memory of the bare loop's process",
               of_memory(lambda m: nbytes(m.peak_rss))),
    ]  # fmt: skip
    if any(level.quality for level in report.levels):
        scored = {column.title: column for column in _quality()}
        found += [scored[title] for title in ("KLD", "same top", "flips")]
    return found


def _size() -> list[Column]:
    return [
        Column("size", "bytes of the file", lambda level: human_bytes(level.size_bytes)),
        Column("bits", "bits per weight", lambda level: f"{level.bpw:.3f}"),
        Column("w/o embeddings", "bits per weight, without embedding and output matrices",
               lambda level: f"{level.bpw_without_embeddings:.3f}"),
        Column("metadata", "general.file_type", lambda level: level.file_type or NONE),
        Column("mix", "encodings of the tensors by share of the weights", lambda level: ", ".join(
            f"{share:.1%} {name}" for name, share in level.mix.items())),
        Column("cold", "seconds until ready, from the disk",
               of_load(lambda x: NONE if x.cold is None else f"{x.cold.mean:.2f}")),
        Column("warm", "seconds until ready, from the system's cache",
               of_load(lambda x: f"{x.warm.mean:.2f}")),
    ]  # fmt: skip


def _speed(report: Report) -> list[Column]:
    n, sizes = report.streams, report.sizes
    found: list[Column] = []
    for depth in sorted({0, sizes.depth}):
        at, after = (f" @{depth}", f" after {depth} tokens of context") if depth else ("", "")
        found.append(
            Column(f"read{at}", f"a prompt of {sizes.prompt} tokens{after}, bare loop",
                   rate("prefill", 1, depth)))  # fmt: skip
        for streams in sorted({1, n}):
            by = f" x{streams}" if streams > 1 else ""
            found.append(
                Column(f"write{by}{at}", f"{streams} streams together{after}, bare loop",
                       rate("decode", streams, depth)))  # fmt: skip
    for streams in sorted({1, n}):
        by = f" x{streams}" if streams > 1 else ""
        found.append(
            Column(f"HTTP{by}", f"{streams} streams together over HTTP",
                   of_requests(streams, lambda r: per_s(r.per_s))))  # fmt: skip
    found.append(
        Column("GB/s", "weights read while writing, and their share of what this machine reads",
               of_speed(_gb_per_s)))  # fmt: skip
    return found


def _latency(report: Report) -> list[Column]:
    found: list[Column] = []
    for streams in sorted({1, report.streams}):
        by = f" x{streams}" if streams > 1 else ""
        for bare in (True, False):
            way, where = ("bare", "in the bare loop") if bare else ("HTTP", "over HTTP")
            found += [
                Column(f"TTFT {way}{by}", f"to the first token of {streams} requests {where}",
                       of_requests(streams, lambda r: milliseconds(r.ttft), bare=bare)),
                Column(f"ITL {way}{by}", f"between tokens of a stream, {streams} of them, {where}",
                       of_requests(streams, lambda r: milliseconds(r.itl), bare=bare)),
            ]  # fmt: skip
    return found


def _memory() -> list[Column]:
    return [
        Column("peak", "largest resident memory of the bare loop's process (VmHWM)",
               of_memory(lambda m: nbytes(m.peak_rss))),
        Column("PSS", "its proportional share at the end",
               of_memory(lambda m: nbytes(m.pss))),
        Column("peak HTTP", "largest resident memory of the server's process",
               of_memory(lambda m: nbytes(m.server_peak_rss))),
        Column("PSS HTTP", "its proportional share at the end",
               of_memory(lambda m: nbytes(m.server_pss))),
        Column("device", "buffers outside of the host's memory",
               of_memory(lambda m: nbytes(m.device_bytes))),
        Column("planned", "what `worker plan` says for that context and those streams",
               of_memory(lambda m: nbytes(m.planned_bytes))),
        Column("cells", "context that it was measured with, for all streams",
               of_memory(lambda m: f"{m.context:,}")),
        Column("KV/token", "bytes of the KV cache for one token",
               of_memory(lambda m: nbytes(m.kv_bytes_per_token))),
        Column("context", "longest context whose worker fits this machine now",
               of_memory(lambda m: f"{m.max_context:,}")),
    ]  # fmt: skip


def _quality() -> list[Column]:
    return [
        Column("PPL", "perplexity of the text",
               of_quality(lambda q: plus_minus(q.ppl, q.ppl_error, 4))),
        Column("ln ratio", "ln of the perplexity's ratio to the reference's",
               of_quality(lambda q: plus_minus(q.ln_ppl_ratio, q.ln_ppl_ratio_error, 5))),
        Column("KLD", "mean KL divergence from the reference, nats; its error by windows",
               of_quality(lambda q: divergence(q.kld_mean, q.kld_mean_error_windows))),
        Column("50, 90, 95 %", "so many of the tokens diverge by less", of_quality(
            lambda q: f"{abs(q.kld_median):.5f} {q.kld_p90:.5f} {q.kld_p95:.5f}")),
        Column("99, 99.9, 100 %", "so many of the tokens diverge by less", of_quality(
            lambda q: f"{q.kld_p99:.4f} {q.kld_p999:.4f} {q.kld_max:.4f}")),
        Column("same top", "tokens with the same likeliest one",
               of_quality(lambda q: f"{q.same_top:.1%} ±{q.same_top_error:.1%}")),
        Column("Δp", "mean change of the probability of the text's own tokens",
               of_quality(lambda q: f"{q.dp_mean:+.3%} ±{q.dp_mean_error:.3%}")),
        Column("Δp RMS", "root of its mean square",
               of_quality(lambda q: f"{q.dp_rms:.2%} ±{q.dp_rms_error:.2%}")),
        Column("flips", "multiple-choice answers that turned right or wrong",
               of_quality(lambda q: f"{q.choices.flips:.1%}")),
        Column("right", "multiple-choice answers that are right",
               of_quality(lambda q: f"{q.choices.accuracy:.0%} ±{q.choices.accuracy_error:.0%}")),
        Column("greedy", "first token of a greedy text that is another one, median",
               of_quality(_greedy)),
    ]  # fmt: skip


def _gb_per_s(speed: Speed) -> str:
    share = "" if speed.bandwidth_share is None else f" ({speed.bandwidth_share:.0%})"
    return f"{speed.gb_per_s:.1f}{share}"


def _greedy(quality: LevelQuality) -> str:
    greedy = quality.greedy
    if greedy.identical == greedy.prompts:
        return "all the same"
    return f"{greedy.median_first_difference:.0f} of {greedy.tokens}"
