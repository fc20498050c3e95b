"""What `--decisions` and `--decisions-orders` change: right answers, and tokens to compute.

    python -m benchmarks.decision_defaults MODEL [--questions FILE] [--every 3]

Each setting answers the same questions, all in one process. What two settings ask alike is computed
once. A line is one kind of question with one setting.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from benchmarks.decisions import ScoringBench, nothing
from worker.api.decisions.reading import Plan, plan_of
from worker.api.decisions.request_body import read_decision
from worker.api.decisions.systemone_schemas import SystemOneRequest
from worker.api.intake.media_inputs import MediaInputs
from worker.bench.decisions.questions import AskedState, question_set, read_questions
from worker.budget import UNBOUNDED
from worker.engine.scoring import Score, Suffix

Mode = Literal["letters", "texts"]
# The first one of a mode asks all that the others of it ask.
SETTINGS: tuple[tuple[Mode, int], ...] = (
    ("letters", 4), ("letters", 2), ("letters", 1), ("texts", 2), ("texts", 1),
)  # fmt: skip
_KINDS = ("statement", "choice", "scale")


class SettingAnswer(msgspec.Struct, frozen=True):
    """One question with one setting. nll: -ln p of the right option; tokens: behind the state"""

    is_right: bool
    nll: float
    flips: float
    mass: float
    tokens: int


class DefaultsBench:
    def __init__(self, path: str, threads: int) -> None:
        self._bench = ScoringBench(path, threads)
        self.found: dict[tuple[str, Mode, int], list[SettingAnswer]] = {}

    def ask(self, state: AskedState) -> None:
        """All questions of a state, with each setting."""
        body = msgspec.json.encode({"state": state.state, "questions": state.questions})
        asked = read_decision(bytearray(body), "application/json", SystemOneRequest)
        decision = asked.decision(MediaInputs())
        rights = list(state.asked.values())
        known: dict[tuple[Suffix, ...], Score] = {}
        for mode, orders in SETTINGS:
            facts = self._bench.facts
            settings = msgspec.structs.replace(
                facts.settings, decisions=mode, decisions_orders=orders
            )
            facts = msgspec.structs.replace(facts, settings=settings)
            plan = plan_of(decision, facts, self._bench.chat, UNBOUNDED)
            scores = self._scores(plan, known)
            lengths = [len(each.tokens) for each in plan.request.suffixes]
            for right, planned, reading in zip(
                rights, plan.asked, plan.readings(scores), strict=True
            ):
                found = self.found.setdefault((right.kind, mode, orders), [])
                p = reading.probabilities
                begin, last = planned.views[0].first, planned.views[-1]
                tokens = sum(lengths[begin : last.first + 1 + last.count])
                found.append(
                    SettingAnswer(
                        p.index(max(p)) == right.right,
                        -math.log(max(p[right.right], 1e-300)),
                        reading.flips / reading.orders,
                        reading.label_mass,
                        tokens,
                    )
                )

    def _scores(self, plan: Plan, known: dict[tuple[Suffix, ...], Score]) -> list[Score]:
        suffixes = plan.request.suffixes
        if any(each.chain not in known for each in suffixes):
            request = msgspec.structs.replace(plan.request, doubtful=nothing)
            scored = self._bench.score(msgspec.structs.replace(plan, request=request))
            known.update(zip((each.chain for each in suffixes), scored.scores, strict=True))
        return [known[each.chain] for each in suffixes]

    def table(self) -> str:
        """Of all that was asked up to now."""
        lines: list[str] = []
        for (kind, mode, orders), found in sorted(
            self.found.items(), key=lambda each: (_KINDS.index(each[0][0]), each[0][1], each[0][2])
        ):
            mean = {
                name: statistics.mean(float(getattr(each, name)) for each in found)
                for name in SettingAnswer.__struct_fields__
            }
            error = math.sqrt(mean["is_right"] * (1 - mean["is_right"]) / len(found))
            figures = f"{mean['is_right']:.3f} ± {error:.3f} | {mean['nll']:.3f}"
            figures += f" | {mean['flips']:.3f} | {mean['mass']:.3f} | {mean['tokens']:.1f}"
            lines.append(f"| {kind} | {mode} | {orders} | {len(found)} | {figures} |")
        return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Ask, and print the table after every tenth state."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args(argv)
    questions = read_questions(given.questions) if given.questions else question_set("general")
    bench = DefaultsBench(given.model, given.threads)
    states = questions.states[:: given.every]
    for number, state in enumerate(states, 1):
        bench.ask(state)
        if number % 10 == 0 or number == len(states):
            print(f"{number} of {len(states)} states of {questions.name}")
            print("| kind | mode | orders | questions | right | -ln p | flips | mass | tokens |")
            print(bench.table(), flush=True)


if __name__ == "__main__":
    main()
