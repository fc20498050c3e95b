"""Whatever is done to a file: it is refused at once, or llama.cpp runs or refuses it.

`make check SUITE=fuzz MINUTES=n` goes on with other numbers for as long as it is given. What it
finds becomes a case of the check that refuses it, in `tests/model/checks` or `tests/gguf`.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checks.fuzz.corpus import corpus
from checks.fuzz.finding import judged
from checks.fuzz.judge import FuzzJudge
from checks.fuzz.mutant import MUTATORS, Plan, Step

QUICK = [name for name, seed in corpus().items() if not seed.slow]
STEPS = st.builds(Step, st.sampled_from(MUTATORS), st.integers(0, 2**32 - 1))
PLANS = st.builds(Plan, st.sampled_from(QUICK), st.lists(STEPS, min_size=1, max_size=3).map(tuple))


def complaints(plans: list[Plan], judge: FuzzJudge) -> list[str]:
    """What is wrong, with the command that repeats it."""
    found: list[str] = []
    for plan in plans:
        _, complaint, said = judged(plan, judge)
        if complaint:
            found.append(f"python -m checks.fuzz --mutant '{plan}': {complaint} {said}")
    return found


def test_every_mutator(judge: FuzzJudge) -> None:
    """Each mutator once, over one file after the other."""
    plans = [Plan(QUICK[number % len(QUICK)], (Step(name, number),))
             for number, name in enumerate(MUTATORS)]  # fmt: skip
    assert complaints(plans, judge) == []


@given(plan=PLANS)
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_plan(plan: Plan, judge: FuzzJudge) -> None:
    """Several changes of one file; Hypothesis makes the plan shorter where one is wrong."""
    assert complaints([plan], judge) == []
