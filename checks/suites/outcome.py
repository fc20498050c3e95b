"""What came of a suite: cases that passed, that are accepted to differ, and that are lost."""

from __future__ import annotations

import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec

PASSED, SKIPPED = "passed", "skipped"
_ACCEPTED = Path(__file__).parent / "accepted.toml"


class Outcome(msgspec.Struct):
    """Of a suite.

    found  case -> passed, skipped, or how it failed in a line
    peer   the same of the original, where it was run
    """

    suite: str
    found: dict[str, str]
    peer: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    @property
    def passed(self) -> int:
        """Cases that passed."""
        return sum(said == PASSED for said in self.found.values())

    @property
    def cases(self) -> int:
        """Cases that were run."""
        return sum(said != SKIPPED for said in self.found.values())

    def accepted(self) -> dict[str, str]:
        """Case that failed -> why that is accepted."""
        reasons = tomllib.loads(_ACCEPTED.read_text("utf-8")).get(self.suite, {})
        return {
            case: reason
            for case, said in self.found.items()
            if said not in (PASSED, SKIPPED) and (reason := _reason(case, said, reasons))
        }

    def lost(self) -> dict[str, str]:
        """Case that failed without such a reason -> how."""
        accepted = self.accepted()
        return {
            case: said
            for case, said in self.found.items()
            if said not in (PASSED, SKIPPED) and case not in accepted
        }


def junit(report: Path, prefix: str) -> dict[str, str]:
    """Case, without the prefix -> passed, skipped, or the first lines of why it failed."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').removeprefix(prefix)}::{case.get('name')}"
        said = PASSED
        for child in case:
            if child.tag == SKIPPED:
                said = SKIPPED
            elif child.tag in ("failure", "error"):
                said = " ".join((child.get("message") or child.tag).split())[:200]
        found[name] = said
    return found


def _reason(case: str, said: str, reasons: dict[str, str]) -> str | None:
    """That of the first key which is a part of the case's name, or of how it failed."""
    return next((why for key, why in reasons.items() if key in f"{case} {said}"), None)
