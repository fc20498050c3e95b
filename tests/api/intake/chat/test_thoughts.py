"""Thoughts of a model with random weights: as long as they may be, and then what was asked for."""

from __future__ import annotations

import msgspec
import pytest

from tests.api.intake.chat.answers import Model, asked_of, said
from tests.support.models import templates
from worker.chat.thinking import Thinking
from worker.engine.sampling import SamplingParams
from worker.grammar.constraint import schema_constraint
from worker.settings import Settings

pytestmark = pytest.mark.skipif(not templates.names(), reason=templates.WHY_NOT)

JSON = schema_constraint({"enum": ["yes", "no"]}, "response_format")


@pytest.mark.parametrize("budget", [0, 1, 20])
def test_a_budget_ends_a_thought(model: Model, budget: int) -> None:
    """With so many tokens at most; a token of this model has eight characters at most."""
    thinking = Thinking(is_on=True, budget=budget)
    options = {"choice": "none", "max_tokens": 100, "thinking": thinking}
    found = said(model, asked_of(model, "Qwen3.5-4B", **options))
    assert len(found.thought) <= 8 * budget
    assert found.content


def test_the_operators_word_ends_it(model: Model) -> None:
    """Where a thought is cut off, it ends with what the command line says."""
    settings = Settings(reasoning_budget_message=" Enough.")
    model = model._replace(facts=msgspec.structs.replace(model.facts, settings=settings))
    thinking = Thinking(is_on=True, budget=2)
    options = {"choice": "none", "max_tokens": 40, "thinking": thinking}
    found = said(model, asked_of(model, "Qwen3.5-4B", **options))
    assert found.thought.rstrip().endswith(" Enough.")
    assert found.content


@pytest.mark.parametrize("family", ["Qwen3.5-4B", "Qwen-Qwen3-0.6B", "openai-gpt-oss-120b"])
def test_calls_come_after_thoughts(model: Model, family: str) -> None:
    """Wherever a thought begins, in the prompt or in the answer, and whoever ends it."""
    thinking = Thinking(is_on=True, budget=5)
    found = said(model, asked_of(model, family, thinking=thinking))
    assert found.finish_reason == "tool_calls", (found.content, found.thought)
    assert len(found.thought) <= 40
    assert not found.content.strip()


@pytest.mark.parametrize("family", ["Qwen3.5-4B", "Qwen-Qwen3-0.6B", "openai-gpt-oss-120b"])
def test_structure_comes_after_thoughts(model: Model, family: str) -> None:
    """JSON that was asked for, alone."""
    found = said(
        model,
        asked_of(
            model, family, tools=(), choice="auto", thinking=Thinking(is_on=True, budget=5),
            sampling=SamplingParams(seed=1, constraint=JSON),
        ),
    )  # fmt: skip
    assert found.finish_reason == "stop"
    assert msgspec.json.decode(found.content) in ("yes", "no")


def test_structure_or_calls(model: Model) -> None:
    """Beside tools, an answer is either."""
    sampling = SamplingParams(seed=1, constraint=JSON)
    found = said(model, asked_of(model, "Qwen3-Coder", choice="auto", sampling=sampling))
    if found.calls:
        assert found.finish_reason == "tool_calls"
    else:
        assert msgspec.json.decode(found.content) in ("yes", "no")
