"""The whole report in one HTML file: no other file, no script, light and dark."""

from __future__ import annotations

import msgspec

from worker.bench.columns import mark, meanings
from worker.bench.escaping import escape
from worker.bench.results import LevelReport, Report
from worker.bench.summary import headline, paragraphs
from worker.bench.svg import STYLE as PLOT_STYLE
from worker.bench.svg import svg
from worker.bench.tables import Table, tables

_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem;
background:#fff;color:#1c1c1c}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
.verdict{border-left:4px solid #3f9b57;padding:.4rem 1rem;background:#f1f7f2}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.85rem}
th,td{border-bottom:1px solid #ddd;padding:.35rem .7rem;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}
tr.chosen td{background:#f1f7f2}
svg{max-width:100%;height:auto}
pre{overflow:auto;max-height:24rem;font-size:.75rem;background:#f4f4f4;padding:.8rem}
@media (prefers-color-scheme:dark){
body{background:#16181c;color:#e6e6e6}
.verdict,tr.chosen td{background:#1d2a21}
th,td{border-color:#33363c}
pre{background:#202329}
}
"""


def html(report: Report) -> str:
    """Everything that comes from files or from the command line is escaped."""
    title = escape(f"{report.model}: which quant level")
    sections = [
        f"<h2>{escape(name)}</h2><ul>{''.join(f'<li>{escape(t)}</li>' for t in texts)}</ul>"
        for name, texts in paragraphs(report)
    ]
    known: dict[str, str] = {}
    for table in tables(report):
        known |= meanings(table.columns)
    listed = "".join(
        f"<dt><b>{escape(name)}</b></dt><dd>{escape(meaning)}</dd>"
        for name, meaning in known.items()
    )
    raw = msgspec.json.format(msgspec.json.encode(report), indent=1).decode()
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}{PLOT_STYLE}</style></head>\n<body>"
        f'<h1>{title}</h1><p class="verdict">{escape(headline(report))}</p>'
        f"{svg(report, styled=False)}"
        f"{''.join(_table(table, report) for table in tables(report))}{''.join(sections)}"
        f"<h2>Files</h2><ul>{''.join(map(_file, report.levels))}</ul>"
        f"<details><summary>Columns</summary><dl>{listed}</dl></details>"
        f"<details><summary>All of it as JSON</summary><pre>{escape(raw)}</pre></details>"
        "</body></html>\n"
    )


def _table(table: Table, report: Report) -> str:
    head = "".join(
        f'<th scope="col" title="{escape(column.meaning)}">{escape(column.title)}</th>'
        for column in table.columns
    )
    rows = "".join(
        f"<tr{_chosen(level, report)}>"
        + "".join(f"<td>{escape(column.text(level))}</td>" for column in table.columns)
        + "</tr>"
        for level in report.levels
    )
    return (
        f'<h2>{escape(table.title)}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _chosen(level: LevelReport, report: Report) -> str:
    return ' class="chosen"' if level.quant == report.verdict.recommended else ""


def _file(level: LevelReport) -> str:
    mix = ", ".join(f"{share:.1%} {name}" for name, share in level.mix.items())
    told = f"metadata says {level.file_type or 'nothing'}, tensors make it {level.encoding}: {mix}"
    return (
        f"<li>{escape(mark(level, None))}: <code>{escape(level.file)}</code>, "
        f"sha256 <code>{level.sha256[:16]}…</code>; {escape(told)}</li>"
    )
