"""Whether a model is to think, in each word and each place that clients of some server use."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.cases import for_each
from worker.api.anthropic.schemas import MessagesRequest
from worker.api.intake.chat.chat_request import ChatRequest
from worker.api.intake.thinking import ChatFields, thinking_of
from worker.api.ollama.schemas import GenerateRequest, OllamaChatRequest, OllamaOptions
from worker.api.responses.schemas import ResponseRequest
from worker.chat.thinking import Thinking, switch_thinking
from worker.errors import RequestError
from worker.settings import Settings

BODIES = (
    ChatRequest,
    ResponseRequest,
    MessagesRequest,
    OllamaChatRequest,
    OllamaOptions,
    GenerateRequest,
)
NO: list[Any] = [False, 0, 0.0, "false", "OFF", " none ", "No", "disabled"]
PLACES: list[tuple[str, ...]] = [
    ("reasoning_effort",),
    ("think",),
    ("thinking",),
    ("thinking", "type"),
    ("thinking", "enabled"),
    ("enable_thinking",),
    ("reasoning",),
    ("reasoning", "effort"),
    ("reasoning", "enabled"),
    ("output_config", "effort"),
    ("chat_template_kwargs", "enable_thinking"),
    ("chat_template_kwargs", "thinking"),
    ("chat_template_kwargs", "reasoning_effort"),
]


def placed(place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A body's fields with the value at that place."""
    for name in reversed(place):
        value = {name: value}
    return value


@for_each("shape", BODIES)
@for_each("place", PLACES)
def test_a_word_for_no(shape: type[ChatFields], place: tuple[str, ...]) -> None:
    """It means no; null says nothing, and a word for yes is none for no."""
    for word in NO:
        assert thinking_of(msgspec.convert(placed(place, word), shape)).is_on is False, word
    assert thinking_of(msgspec.convert(placed(place, None), shape)).is_on is None
    assert thinking_of(msgspec.convert(placed(place, "on"), shape)).is_on is True


@for_each("shape", BODIES)
@for_each(
    ("fields", "expected"),
    [
        ({"reasoning": {"effort": "high", "max_tokens": 9}}, Thinking(effort="high", budget=9)),
        ({"reasoning": "low"}, Thinking(effort="low")),
        ({"thinking": {"type": "enabled", "budget_tokens": 7}}, Thinking(is_on=True, budget=7)),
        ({"thinking": "adaptive"}, Thinking(is_on=True)),
        ({"thinking_budget": 5}, Thinking(budget=5)),
        ({"chat_template_kwargs": {"thinking_budget": 0}}, Thinking(budget=0)),
        ({"reasoning_effort": "high", "enable_thinking": False},
         Thinking(is_on=False, effort="high")),
    ],
)  # fmt: skip
def test_how_much(shape: type[ChatFields], fields: dict[str, Any], expected: Thinking) -> None:
    """A word, and tokens; a word for no counts beside one for how much."""
    assert thinking_of(msgspec.convert(fields, shape)) == expected


@pytest.mark.parametrize("shape", BODIES)
@pytest.mark.parametrize(
    ("settings", "fields", "expected"),
    [
        (Settings(reasoning="off"), {}, Thinking(is_on=False)),
        (Settings(reasoning="off"), {"enable_thinking": True}, Thinking(is_on=True)),
        (Settings(reasoning="on"), {"reasoning_effort": "none"},
         Thinking(is_on=False, effort="none")),
        (Settings(reasoning="on", reasoning_effort="low"), {}, Thinking(is_on=True, effort="low")),
        (Settings(reasoning_budget=9), {}, Thinking(budget=9)),
        (Settings(reasoning_budget=9), {"thinking_budget": 3}, Thinking(budget=3)),
        (Settings(reasoning_budget=0), {}, Thinking(is_on=False, budget=0)),
        (Settings(reasoning_budget=0), {"enable_thinking": True}, Thinking(is_on=True)),
    ],
)  # fmt: skip
def test_what_the_operator_says_counts_where_a_request_says_nothing(
    shape: type[ChatFields], settings: Settings, fields: dict[str, Any], expected: Thinking
) -> None:
    """A request that asks for thoughts has them, though the operator's budget is none."""
    assert thinking_of(msgspec.convert(fields, shape), settings=settings) == expected


def test_an_odd_type() -> None:
    """What is neither yes nor no is refused."""
    for word in ("perhaps", ["x"]):
        with pytest.raises((RequestError, msgspec.ValidationError), match="thinking"):
            thinking_of(msgspec.convert({"thinking": {"type": word}}, ChatRequest))


def test_a_template_that_does_not_know_none() -> None:
    """An effort that is a word for no is not handed to the template as it is."""
    asked = {"reasoning_effort": "None", "enable_thinking": "off", "other": "off"}
    assert switch_thinking(asked) == {"enable_thinking": False, "other": "off"}
    assert switch_thinking({"reasoning_effort": "high"}) == {"reasoning_effort": "high"}
