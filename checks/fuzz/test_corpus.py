"""The files that are damaged are sound: what is found is the damage's."""

from __future__ import annotations

import pytest

from checks.fuzz.corpus import corpus
from checks.fuzz.finding import judged
from checks.fuzz.judge import FuzzJudge
from checks.fuzz.mutant import MUTATORS, Plan, Step, grown
from tests.support.models.ggufs import llama_gguf
from tests.support.models.parsing import parsed


@pytest.mark.parametrize("name", [name for name, seed in corpus().items() if not seed.slow])
def test_a_sound_file_runs(name: str, judge: FuzzJudge) -> None:
    """Without a step a file is accepted, loaded, and writes tokens."""
    verdict, complaint, _ = judged(Plan(name, ()), judge)
    assert (verdict.stage, complaint) == ("ran", ""), verdict


def test_a_file_that_was_parsed_is_written_as_it_was() -> None:
    """Nothing is lost between bytes and what can be edited."""
    data = llama_gguf(vocab="bpe").encode()
    assert parsed(data).encode() == data


def test_a_plan_is_its_description() -> None:
    """The same text gives the same bytes; a step left out leaves the others as they were."""
    plan = Plan("llama", tuple(Step(name, 7) for name in ("token", "special", "flip")))
    assert Plan.parse(str(plan)) == plan
    assert grown(plan).files == grown(Plan.parse(str(plan))).files
    assert grown(plan.without(0)).said == grown(plan).said[1:]


def test_every_mutator_changes_something() -> None:
    """A mutator that changes no file of the corpus is none."""
    idle: list[str] = []
    for mutator in MUTATORS:
        for number in range(20):
            seed = "tokenizer-t5-charsmap" if mutator == "charsmap" else "llama-bpe"
            if mutator == "split-keys":
                seed = "split"
            plan = Plan(seed, (Step(mutator, number),))
            if grown(plan).files != grown(Plan(seed, ())).files:
                break
        else:
            idle.append(mutator)
    assert idle == []
