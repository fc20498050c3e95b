"""`python -m checks.fuzz --minutes 10`: damage files, judge them, say what was found.

--seed N --case K         one case of a run
--mutant 'llama token=1'  one file by its description; --write FOLDER keeps it
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from checks.fuzz.finding import Finding, judged, minimised
from checks.fuzz.judge import FuzzJudge
from checks.fuzz.mutant import MUTATORS, Plan, grown, numbered


def main() -> int:
    """0: nothing was found; 1: something was."""
    parser = argparse.ArgumentParser(prog="python -m checks.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, help="of the run; else any")
    parser.add_argument("--case", type=int, help="only this one")
    parser.add_argument("--cases", type=int, help="so many, and not by the clock")
    parser.add_argument("--mutant", help="only the file of this description")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="keep that file")
    parser.add_argument("--log", type=Path, metavar="FILE", help="a line of JSON a finding")
    asked = parser.parse_args()
    seed = secrets.randbelow(2**32) if asked.seed is None else asked.seed
    with closing(FuzzJudge()) as judge:
        if asked.mutant is not None:
            return _one(Plan.parse(asked.mutant), judge, asked.write)
        if asked.case is not None:
            return _one(numbered(seed, asked.case), judge, asked.write)
        return _many(seed, judge, asked)


def _one(plan: Plan, judge: FuzzJudge, folder: Path | None) -> int:
    if folder is not None:
        folder.mkdir(exist_ok=True)
        print("written:", grown(plan).write(folder))
    verdict, complaint, said = judged(plan, judge, fresh=True)
    print(plan, *said, verdict, complaint or "nothing is wrong", sep="\n    ")
    return 1 if complaint else 0


def _many(seed: int, judge: FuzzJudge, asked: argparse.Namespace) -> int:
    ends = time.monotonic() + asked.minutes * 60
    stages: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    used: Counter[str] = Counter()
    found: dict[str, Finding] = {}
    odd: list[str] = []
    slowest = largest = template = 0.0
    case = 0
    while case < asked.cases if asked.cases is not None else time.monotonic() < ends:
        plan = numbered(seed, case)
        verdict, complaint, said = judged(plan, judge)
        stages[verdict.stage] += 1
        codes[verdict.code] += verdict.stage == "refused"
        used.update({step.mutator for step in plan.steps})
        slowest, largest = max(slowest, verdict.seconds), max(largest, verdict.nbytes)
        template = max(template, verdict.template)
        if complaint:
            finding = minimised(plan, judge)
            if finding is None:
                odd.append(f"case {case} after {judge.since} files: {complaint} ({plan})")
                finding = Finding(plan, verdict, complaint, said, repeats=False)
            mutators = [step.mutator for step in finding.plan.steps]
            key = f"{finding.plan.seed} {mutators} {finding.complaint[:60]}"
            if key not in found:
                found[key] = finding
                _tell(finding, case, asked.log)
        case += 1
    print(json.dumps({
        "seed": seed, "files": case, **stages, "findings": len(found), "not_repeated": len(odd),
        "children": judge.num_children, "slowest_check_s": round(slowest, 3),
        "largest_check_mb": round(largest / 1e6, 1), "slowest_template_s": round(template, 2),
        "mutators": len(used), "of": len(MUTATORS), "refusals": dict(codes.most_common()),
    }))  # fmt: skip
    return 1 if found else 0


def _tell(finding: Finding, case: int, file: Path | None) -> None:
    words = [f"case {case}", finding.complaint, *finding.said, finding.command]
    print(*words, sep="\n    ", flush=True)
    if file is not None:
        with file.open("a") as out:
            out.write(json.dumps(words) + "\n")


if __name__ == "__main__":
    sys.exit(main())
