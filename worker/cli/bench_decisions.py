"""`worker bench --decisions`: how well quant levels answer typed questions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from worker.bench.decisions.documents import as_markdown, as_picture
from worker.bench.decisions.report import (
    HEADINGS,
    KIND_HEADINGS,
    DecisionReport,
    curve,
    kind_rows_of,
    rows_of,
    words_of,
)
from worker.bench.decisions.run import DecisionRun
from worker.bench.report.documents import write_documents
from worker.cli.bench_table import plain_table, watch
from worker.cli.console import data_console, plain, with_title, write_json
from worker.demo import MODEL_PATH

if TYPE_CHECKING:
    from worker.bench.plan import BenchPlan
    from worker.bench.run.cache import BenchCache


def compare(
    plan: BenchPlan, cache: BenchCache, questions: str, out: Path | None, *, as_json: bool
) -> int:
    """Ask each level, show and write what was found."""
    report = watch(DecisionRun(plan, cache, questions, MODEL_PATH).events(), _summary)
    if out is not None:
        makers = {
            "json": lambda: msgspec.json.encode(report).decode(),
            "md": lambda: as_markdown(report),
            "svg": lambda: as_picture(report),
        }
        for path in write_documents(makers, out):
            sys.stderr.write(f"wrote {path}\n")
    if as_json:
        write_json(report)
    else:
        console = data_console()
        console.print(_whole(report))
    return 0


def _summary(report: DecisionReport, _: int) -> RenderableType:
    return with_title(report.model, plain_table(HEADINGS, rows_of(report)))


def _whole(report: DecisionReport) -> RenderableType:
    parts: list[RenderableType] = [
        _summary(report, 0),
        Text(),
        plain_table(KIND_HEADINGS, kind_rows_of(report)),
    ]
    for level in report.levels:
        if level.whole is not None:
            confident, right = curve(level)
            parts += [
                Text(),
                plain(
                    f"{level.quant}: confidence in bins of equal mass, and how often it is right"
                ),
                plain(f"  confidence {confident}"),
                plain(f"  right      {right}"),
            ]
    return Group(*parts, Text(), *map(plain, words_of(report)))
