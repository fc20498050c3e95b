"""What one type of cells was measured at, and what follows from all of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from worker.bench.sections import Divergence
from worker.bench.stages import BenchStage
from worker.machine import human_bytes

FORMAT = 1
HEADINGS = ("file", "cells", "KLD", "same top", "flips", "needles", "read", "write", "8,192 cells")
LIMIT = 0.01  # nats; below it hardly anything differs
_SHOWN_CELLS = 8192
RULE = (
    f"Of the cells that diverge by at most {LIMIT:g} nats (with 95 % confidence) from the first "
    "ones and find as many needles, take the smallest."
)


class CellsScores(msgspec.Struct, frozen=True, kw_only=True):
    """Of one file with one type of cells.

    bytes_per_cell  over all layers, as llama.cpp allocates it
    choices   index of the chosen ending of each question
    needles   whether each was found; empty: not measured
    read_per_s, write_per_s  tokens a second at that context
    """

    bytes_per_cell: int
    divergence: Divergence
    choices: list[int]
    needles: list[bool]
    read_per_s: float
    write_per_s: float


class CellsLevel(msgspec.Struct, frozen=True, kw_only=True):
    """scores  None: it could not be measured, for the reason `error`
    flips   share of questions that turned right or wrong beside the reference
    """

    file: str
    cells: str
    bytes_per_cell: int = 0
    scores: CellsScores | None = None
    flips: float = 0.0
    is_reference: bool = False
    error: str | None = None

    @property
    def margin(self) -> float:
        """Half of the 95 % interval of the divergence."""
        assert self.scores is not None
        found = self.scores.divergence
        return 1.96 * max(found.kld_mean_error, found.kld_mean_error_windows or 0.0)


class CellsReport(msgspec.Struct, frozen=True, kw_only=True):
    """context: tokens of a window; the last `scored` of them are compared"""

    format: int
    created: str
    model: str
    context: int
    scored: int
    levels: tuple[CellsLevel, ...]
    recommended: dict[str, str]
    rule: str = RULE


CELLS = BenchStage("cells", CellsScores, lambda cost: cost.start_s + cost.scoring_s)


def recommend(levels: Sequence[CellsLevel]) -> dict[str, str]:
    """File -> the cells to take with it, by the rule."""
    found: dict[str, str] = {}
    for file in dict.fromkeys(level.file for level in levels):
        mine = [level for level in levels if level.file == file and level.scores is not None]
        reference = next((level for level in mine if level.is_reference), None)
        if reference is None:
            continue
        fit = [level for level in mine if level is reference or _passes(level, reference)]
        found[file] = min(fit, key=lambda level: level.bytes_per_cell).cells
    return found


def _passes(level: CellsLevel, reference: CellsLevel) -> bool:
    assert level.scores is not None
    assert reference.scores is not None
    finds = sum(level.scores.needles) >= sum(reference.scores.needles)
    return finds and level.scores.divergence.kld_mean + level.margin <= LIMIT


def rows_of(report: CellsReport) -> list[tuple[str, ...]]:
    """The table."""
    rows: list[tuple[str, ...]] = []
    for level in report.levels:
        mark = "→ " if report.recommended.get(level.file) == level.cells else ""
        name = mark + level.cells + ("*" if level.is_reference else "")
        scores = level.scores
        if scores is None:
            rows.append((level.file, name, *["-"] * 7))
            continue
        kld = (
            "0"
            if level.is_reference
            else (f"{scores.divergence.kld_mean:.5f} ±{level.margin / 1.96:.5f}")
        )
        needles = f"{sum(scores.needles)}/{len(scores.needles)}" if scores.needles else "-"
        rows.append(
            (
                level.file,
                name,
                kld,
                f"{scores.divergence.same_top:.1%}",
                f"{level.flips:.1%}",
                needles,
                f"{scores.read_per_s:,.0f}",
                f"{scores.write_per_s:,.1f}",
                human_bytes(level.bytes_per_cell * _SHOWN_CELLS),
            )
        )
    return rows


def words_of(report: CellsReport) -> list[str]:
    """The verdict."""
    told = [
        f"Take {cells} cells with {file}: --cache-type-k {_types(cells)[0]} "
        f"--cache-type-v {_types(cells)[1]}."
        for file, cells in report.recommended.items()
    ]
    errors = [
        f"{level.file} with {level.cells} cells was not measured: {level.error}"
        for level in report.levels
        if level.error
    ]
    return [
        *told,
        report.rule,
        *errors,
        f"The last {report.scored:,} of {report.context:,} tokens of each window are compared.",
    ]


def _types(cells: str) -> tuple[str, str]:
    keys, _, values = cells.partition("/")
    return keys.removeprefix("k:"), (values or keys).removeprefix("v:")
