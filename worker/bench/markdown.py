"""The report as Markdown, and its table as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from worker.bench.columns import meanings
from worker.bench.escaping import escape_markdown
from worker.bench.results import LevelReport, Report
from worker.bench.summary import headline, paragraphs
from worker.bench.tables import tables


def markdown(report: Report) -> str:
    """Verdict, tables, how it was measured, what the columns mean."""
    lines = [f"# {escape_markdown(report.model)}: which quant level", ""]
    lines += [escape_markdown(headline(report)), ""]
    known: dict[str, str] = {}
    for table in tables(report):
        known |= meanings(table.columns)
        lines += [f"## {table.title}", "", *_row([column.title for column in table.columns])]
        lines += _row(["---", *["---:"] * (len(table.columns) - 1)])
        for level in report.levels:
            lines += _row([escape_markdown(column.text(level)) for column in table.columns])
        lines.append("")
    for title, texts in paragraphs(report):
        lines += [f"## {title}", "", *(f"- {escape_markdown(text)}" for text in texts), ""]
    lines += ["## Columns", ""]
    lines += [f"- **{title}**: {meaning}" for title, meaning in known.items()]
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> list[str]:
    return [f"| {' | '.join(cells)} |"]


def comma_separated(report: Report) -> str:
    """One row for each level, plain numbers in bytes, seconds, nats and shares."""
    rows = [dict(_fields(level)) for level in report.levels]
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _fields(level: LevelReport) -> Iterator[tuple[str, object]]:
    for name in ("quant", "is_reference", "size_bytes", "n_params", "bpw",
                 "bpw_without_embeddings", "file_type", "encoding", "sha256"):  # fmt: skip
        yield name, getattr(level, name)
    if level.load is not None:
        yield "load_cold_s", level.load.cold.mean if level.load.cold else None
        yield "load_warm_s", level.load.warm.mean
    if level.speed is not None:
        for rate in level.speed.rates:
            name = f"{rate.kind}_x{rate.streams}_at_{rate.depth}_tokens_per_s"
            yield name, rate.per_s.mean
            yield f"{name}_error", rate.per_s.error
        yield "gb_per_s", level.speed.gb_per_s
        yield "bandwidth_share", level.speed.bandwidth_share
        ways = (("bare", level.speed.bare_requests), ("http", level.speed.http_requests))
        for way, requests in ways:
            for request in requests:
                name = f"{way}_x{request.streams}"
                yield f"{name}_tokens_per_s", request.per_s.mean
                yield f"{name}_tokens_per_s_error", request.per_s.error
                for kind, found in (("ttft", request.ttft), ("itl", request.itl)):
                    for share in ("p50", "p95", "p99"):
                        yield f"{name}_{kind}_{share}_s", getattr(found, share, None)
    if level.memory is not None:
        for name in ("peak_rss", "pss", "server_peak_rss", "server_pss", "device_bytes",
                     "kv_bytes_per_token", "max_context"):  # fmt: skip
            yield name, getattr(level.memory, name)
    if level.quality is not None:
        for name in level.quality.__struct_fields__:
            value = getattr(level.quality, name)
            if isinstance(value, int | float):
                yield name, value
        for name in ("accuracy", "flips", "flips_error"):
            yield name, getattr(level.quality.choices, name)
        yield "greedy_first_difference", level.quality.greedy.median_first_difference
