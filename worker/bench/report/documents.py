"""The documents of a report: JSON, Markdown, a picture and a page.

Names of models and files come from strangers. The templates escape all of them, and no character
gets into a document that steers a terminal or that XML cannot hold.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jinja2
import msgspec

from worker.bench.report import BenchReport
from worker.bench.report.columns import Table, fitting, mark, tables
from worker.bench.report.plot import Drawing, SizeDrawing
from worker.bench.report.words import headline, paragraphs
from worker.errors import DiskSpaceError
from worker.files import atomic_write
from worker.log import harmless

R = TypeVar("R")


def _printable(value: Any) -> Any:
    """Text without control characters; anything else as it is."""
    if type(value) is not str:
        return value
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in value)


# Characters of a line of the page's tables, 1,200 pixels, and of them those between two cells.
_LINE = 150, 4

_templates = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    finalize=_printable,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def write_report(report: BenchReport, folder: Path) -> list[Path]:
    """Write report.json, .md, .svg and .html, with fits also .sizes.svg. Raises DiskSpaceError."""
    makers = {"json": _indent, "md": markdown, "svg": picture, "html": page}
    if _has_fits(report):
        makers["sizes.svg"] = size_picture
    return write_documents(report, makers, folder)


def write_documents(
    report: R, makers: Mapping[str, Callable[[R], str]], folder: Path
) -> list[Path]:
    """Write report.KIND for each kind; each is whole or not there.

    Raises DiskSpaceError where the folder takes no more.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for kind, make in makers.items():
        target = folder / f"report.{kind}"
        try:
            with atomic_write(target) as file:
                file.write_text(make(report), encoding="utf-8")
        except OSError as error:
            raise DiskSpaceError(
                f"{target} cannot be written: {error.strerror}.",
                hint="The same command with another --out has the report without measuring again.",
            ) from None
        written.append(target)
    return written


def json_line(report: object) -> str:
    """The report as JSON in one line."""
    return msgspec.json.encode(report).decode()


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is text, the others are numbers."""
    lines = [headings, ("---",) + ("---:",) * (len(headings) - 1), *rows]
    return "".join(f"| {' | '.join(map(harmless, line))} |\n" for line in lines)


def page(report: BenchReport) -> str:
    found = tables(report)
    return _templates.get_template("page.html.j2").render(
        report=report,
        headline=headline(report),
        drawings=[Drawing(report), *([SizeDrawing(report)] if _has_fits(report) else [])],
        styled=False,
        tables=[(table, [*fitting(table.columns, report.levels, *_LINE)]) for table in found],
        paragraphs=paragraphs(report),
        mark=mark,
        meanings=_meanings(found),
        json=_indent(report),
    )


def picture(report: BenchReport) -> str:
    return _templates.get_template("plot.svg.j2").render(drawing=Drawing(report), styled=True)


def size_picture(report: BenchReport) -> str:
    drawing = SizeDrawing(report)
    return _templates.get_template("plot.svg.j2").render(drawing=drawing, styled=True)


def _has_fits(report: BenchReport) -> bool:
    return any(level.fit is not None for level in report.levels)


def markdown(report: BenchReport) -> str:
    """Verdict, tables, how it was measured, what the columns mean."""
    lines = [f"# {escape_markdown(report.model)}: which quant level", ""]
    lines += [escape_markdown(headline(report)), ""]
    found = tables(report)
    for table in found:
        lines += [f"## {table.title}", "", _row([column.title for column in table.columns])]
        lines.append(_row(["---", *["---:"] * (len(table.columns) - 1)]))
        for level in report.levels:
            lines.append(_row([escape_markdown(column.text(level)) for column in table.columns]))
        lines.append("")
    for title, texts in paragraphs(report):
        lines += [f"## {title}", "", *(f"- {escape_markdown(text)}" for text in texts), ""]
    lines += ["## Columns", ""]
    lines += [f"- **{title}**: {meaning}" for title, meaning in _meanings(found).items()]
    return "\n".join(lines) + "\n"


def escape_markdown(text: str) -> str:
    """For Markdown, also inside of a table, and for the HTML that it becomes."""
    for char in "\\`*_[]|":
        text = text.replace(char, f"\\{char}")
    return html.escape(_printable(text), quote=False).replace("\n", " ")


def _meanings(found: list[Table]) -> dict[str, str]:
    """Heading -> what is below it, each once."""
    return {column.title: column.meaning for table in found for column in table.columns}


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _indent(report: BenchReport) -> str:
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
