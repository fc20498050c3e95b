"""SECURITY.md: each promise names the tests that hold it, and they are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "SECURITY.md").read_text()
HEADINGS = ("A file", "A client", "A manager", "Other users of the machine", "The operator")
ROW = re.compile(r"^\| (.+?) \| (.+?) \|$", re.MULTILINE)
HOLDER = re.compile(r"`((?:tests|checks)/[\w/]+\.py)`((?: `test_\w+`)+)")


def names_in(path: Path) -> set[str]:
    """The names of a module's tests."""
    found = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in found if isinstance(node, ast.FunctionDef)}


def rows(heading: str) -> list[tuple[str, str]]:
    """Promises of a chapter, and what holds them."""
    chapter = TEXT.partition(f"### {heading}\n")[2].partition("\n##")[0]
    return ROW.findall(chapter)[1:]


def test_each_promise_has_its_tests() -> None:
    """Nothing but tests that exist stands behind a promise."""
    for heading in HEADINGS:
        promises = rows(heading)
        assert len(promises) > 3, heading
        for promise, holders in promises:
            assert HOLDER.sub("", holders).strip(", ") == "", promise
            for path, names in HOLDER.findall(holders):
                missing = set(re.findall(r"test_\w+", names)) - names_in(ROOT / path)
                assert not missing, (promise, path)


def test_it_says_what_is_not_promised_and_how_to_report() -> None:
    """And that without the name or the address of anybody."""
    for heading in ("## Reporting", "## What is promised", "## What is not promised"):
        assert heading in TEXT
    assert "@" not in TEXT
    assert "://" not in TEXT
