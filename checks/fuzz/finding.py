"""What must not happen, and the shortest plan for which it does."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from checks.fuzz.judge import FuzzJudge
from checks.fuzz.mutant import Plan, grown
from checks.fuzz.verdict import Verdict


@dataclass(frozen=True)
class Finding:
    """A file that is refused too late, too slowly, or not at all.

    complaint  what is wrong
    said       what was done to the file
    repeats    whether a new child says the same of this file alone
    """

    plan: Plan
    verdict: Verdict
    complaint: str
    said: list[str]
    repeats: bool

    @property
    def command(self) -> str:
        """What repeats it."""
        return f"python -m checks.fuzz --mutant '{self.plan}'"


def judged(plan: Plan, judge: FuzzJudge, *, fresh: bool = False) -> tuple[Verdict, str, list[str]]:
    """Make the file and have it judged: the verdict, the complaint, what was done."""
    mutant = grown(plan)
    with tempfile.TemporaryDirectory() as folder:
        path = mutant.write(Path(folder))
        verdict = judge.judge(path, fresh=fresh)
    return verdict, verdict.complaint(sum(map(len, mutant.files))), mutant.said


def minimised(plan: Plan, judge: FuzzJudge) -> Finding | None:
    """The finding with as few steps as still show it; None: a new child finds nothing wrong."""
    verdict, complaint, said = judged(plan, judge, fresh=True)
    if not complaint:
        return None
    place = 0
    while place < len(plan.steps):
        fewer = plan.without(place)
        now, again, words = judged(fewer, judge, fresh=True)
        if again and now.stage == verdict.stage:
            plan, verdict, complaint, said = fewer, now, again, words
        else:
            place += 1
    return Finding(plan, verdict, complaint, said, repeats=True)
