"""Writing a report into a folder."""

from __future__ import annotations

from pathlib import Path

import msgspec

from worker.bench.html import html
from worker.bench.markdown import comma_separated, markdown
from worker.bench.results import Report
from worker.bench.svg import svg
from worker.errors import DiskSpaceError
from worker.files import written_whole


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write report.json, .md, .csv, .svg and .html; each is whole or not there.

    Raises DiskSpaceError where the folder takes no more.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "json": msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n",
        "md": markdown(report),
        "csv": comma_separated(report),
        "svg": svg(report),
        "html": html(report),
    }
    written: list[Path] = []
    for kind, text in texts.items():
        target = folder / f"report.{kind}"
        try:
            with written_whole(target) as partial:
                partial.write_text(text, encoding="utf-8")
        except OSError as error:
            raise DiskSpaceError(
                f"{target} cannot be written: {error.strerror}.",
                hint="The same command with another --out has the report without measuring again.",
            ) from None
        written.append(target)
    return written
