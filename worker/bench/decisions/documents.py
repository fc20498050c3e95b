"""The documents of a report on decisions: Markdown, and the reliability curves as a picture."""

from __future__ import annotations

from pathlib import Path

import jinja2

from worker.bench.decisions.report import (
    HEADINGS,
    KIND_HEADINGS,
    DecisionLevel,
    DecisionReport,
    kind_rows_of,
    rows_of,
    words_of,
)
from worker.bench.report.documents import json_line, markdown_table, write_documents
from worker.log import harmless

_HERE = Path(__file__).parent
_ACROSS = 3  # panels in a row
_SIDE, _GAP, _TOP = 180, 56, 60
_templates = jinja2.Environment(
    loader=jinja2.FileSystemLoader([_HERE, _HERE.parent / "report"]),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def write_decisions(report: DecisionReport, folder: Path) -> list[Path]:
    """Write report.json, .md and .svg. Raises DiskSpaceError."""
    return write_documents(
        report, {"json": json_line, "md": as_markdown, "svg": as_picture}, folder
    )


def as_markdown(report: DecisionReport) -> str:
    parts = [f"# {harmless(report.model)}: decisions\n", markdown_table(HEADINGS, rows_of(report))]
    parts += [markdown_table(KIND_HEADINGS, kind_rows_of(report))]
    return "\n".join([*parts, *(f"{harmless(each)}\n" for each in words_of(report))])


def as_picture(report: DecisionReport) -> str:
    """Reliability curves, a panel for each level: confidence to the right, accuracy upwards, a dot
    for each bin; on the diagonal both are equal."""
    levels = [level for level in report.levels if level.whole is not None]
    columns = max(1, min(_ACROSS, len(levels)))
    rows = -(-len(levels) // columns)
    return _templates.get_template("reliability.svg.j2").render(
        model=harmless(report.model),
        panels=[_panel(level, number, columns) for number, level in enumerate(levels)],
        side=_SIDE,
        width=_GAP + columns * (_SIDE + _GAP),
        height=_TOP + max(1, rows) * (_SIDE + _GAP),
    )


def _panel(level: DecisionLevel, number: int, columns: int) -> dict[str, object]:
    assert level.whole is not None
    left = _GAP + number % columns * (_SIDE + _GAP)
    top = _TOP + number // columns * (_SIDE + _GAP)
    bins = level.whole.bins
    dots = [(round(left + each.confidence * _SIDE, 1),
             round(top + (1 - each.accuracy) * _SIDE, 1), each) for each in bins]  # fmt: skip
    return {"left": left, "top": top, "dots": dots, "title": harmless(level.quant),
            "ece": f"{level.whole.ece:.3f}"}  # fmt: skip
