"""`worker bench --decisions`: how well quant levels answer typed questions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from worker.bench.decisions.documents import write_decisions
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
from worker.cli.bench_table import hand_over, plain_table, watch
from worker.cli.console import plain, with_title
from worker.demo import MODEL_PATH

if TYPE_CHECKING:
    from worker.bench.plan import BenchPlan
    from worker.bench.run.cache import BenchCache


def compare(
    plan: BenchPlan, cache: BenchCache, questions: str, out: Path | None, *, as_json: bool
) -> int:
    """Ask each level, show and write what was found."""
    report = watch(DecisionRun(plan, cache, questions, MODEL_PATH).events(), _summary)
    hand_over(report, write_decisions, out, _whole, as_json=as_json)
    return 0


def _summary(report: DecisionReport, _: int) -> RenderableType:
    return with_title(report.model, plain_table(HEADINGS, rows_of(report)))


def _whole(report: DecisionReport, _: int) -> RenderableType:
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
