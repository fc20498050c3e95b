"""`worker bench --cells`: types of KV cells beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from worker.bench.cells.run import CellsRun, write_cells
from worker.bench.cells.scores import HEADINGS, CellsReport, rows_of, words_of
from worker.cli.bench_table import hand_over, plain_table, watch
from worker.cli.console import plain, with_title

if TYPE_CHECKING:
    from worker.bench.plan import BenchPlan
    from worker.bench.run.cache import BenchCache


def compare(
    plan: BenchPlan,
    cache: BenchCache,
    cells: tuple[tuple[str, str], ...],
    out: Path | None,
    *,
    as_json: bool,
) -> int:
    """Measure, show and write."""
    report = watch(CellsRun(plan, cache, cells).events(), _table)
    hand_over(report, write_cells, out, _whole, as_json=as_json)
    return 0


def _table(report: CellsReport, _: int) -> RenderableType:
    return with_title(report.model, plain_table(HEADINGS, rows_of(report)))


def _whole(report: CellsReport, width: int) -> RenderableType:
    return Group(_table(report, width), *map(plain, words_of(report)))
