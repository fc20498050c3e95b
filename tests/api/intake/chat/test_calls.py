"""Required calls of a model that says nothing by itself: its weights are random."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.api.intake.chat.answers import PARAMETERS, Model, asked_of, said
from tests.support.models import templates
from worker.budget import Budget
from worker.chat.message import Call, Message, Tool
from worker.engine.sampling import SamplingParams
from worker.errors import RequestError
from worker.grammar.constraint import Constraint

pytestmark = pytest.mark.skipif(not templates.names(), reason=templates.WHY_NOT)

FAMILIES = (
    "Qwen-Qwen3-0.6B", "Qwen3-Coder", "meta-llama-Llama-3.1-8B-Instruct", "GLM-4.6",
    "mistralai-Mistral-Nemo-Instruct-2407", "unsloth-mistral-Devstral-Small-2507",
    "deepseek-ai-DeepSeek-V3.1", "deepseek-ai-DeepSeek-V3.2", "google-gemma-4-31B-it",
    "ibm-granite-granite-3.3-2B-Instruct", "meetkai-functionary-medium-v3.2",
    "google-gemma-2-2b-it", "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
)  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_required_calls_are_valid(model: Model, family: str) -> None:
    """One call of a tool that there is, with arguments that its schema holds."""
    found = said(model, asked_of(model, family))
    assert found.finish_reason == "tool_calls", (found.content, found.thought)
    assert found.content.strip() == ""
    (call,) = found.calls
    assert call.name in ("sky", "sea")
    arguments = msgspec.json.decode(call.arguments)
    assert arguments.keys() == {"at", "deep"}
    assert arguments["at"] in ("Rome", "Oslo")
    assert isinstance(arguments["deep"], bool)


@pytest.mark.parametrize("choice", ["required", "auto"])
def test_tools_that_are_too_many_to_be_held(
    model: Model, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    """They are held by their names and by the types of what they take."""
    prepare, refused = model.facts.guides.prepare, list[Constraint]()

    def refuse_once(constraint: Constraint, budget: Budget) -> None:
        if not refused:
            refused.append(constraint)
            constraint.refuse("cannot be held: too big")
        prepare(constraint, budget)

    monkeypatch.setattr(model.facts.guides, "prepare", refuse_once)
    sampling = SamplingParams(seed=3)  # of an answer that comes to its end
    asked = asked_of(model, "Qwen-Qwen3-0.6B", choice=choice, sampling=sampling)
    held = asked.params.sampling.constraint
    assert held is not None
    assert "Rome" in refused[0].text
    assert "Rome" not in held.text
    if choice == "required":
        (call,) = said(model, asked).calls
        assert isinstance(msgspec.json.decode(call.arguments), dict)


@pytest.mark.parametrize("name", ["sky", "sea"])
def test_a_named_tool_is_called(model: Model, name: str) -> None:
    """And no other."""
    found = said(model, asked_of(model, "Qwen3-Coder", choice="auto", only=name))
    assert [call.name for call in found.calls] == [name]


@pytest.mark.parametrize(
    ("family", "name"),
    [
        *((family, name) for family in FAMILIES for name in ("weather/now: today", "x" * 200)),
        *((family, name) for family in FAMILIES[:3] for name in ("天气", "a b", "a_b")),
    ],
)
def test_any_name_can_be_called(model: Model, family: str, name: str) -> None:
    """It comes back as the client wrote it, though the format of calls could not carry it."""
    others = [tool for tool in ("a/b", "a b", "a_b", "a_b_2") if tool != name]
    tools = tuple(Tool(name=tool, parameters=PARAMETERS) for tool in (*others, name))
    asked = asked_of(model, family, tools=tools, choice="auto", only=name, max_tokens=900)
    (call,) = said(model, asked).calls
    assert call.name == name


def test_names_of_the_past_are_the_names_of_tools(model: Model) -> None:
    """Calls and results before have the names that the tools have now."""
    past = Message(role="assistant", calls=(Call("abcdefgh1", "get weather", "{}"),))
    result = Message(role="tool", content="sun", call_id="abcdefgh1", name="get weather")
    messages = (Message(role="user", content="x"), past, result)
    tools = (Tool(name="get weather"), Tool(name="get_weather"))
    asked = asked_of(model, "Qwen3-Coder", messages=messages, tools=tools, choice="auto")
    (prompt,) = asked.prompts
    assert prompt.text.count("get_weather_2") == 2
    assert "get weather" not in prompt.text


@pytest.mark.parametrize(
    "options",
    [{"only": "sun", "choice": "auto"}, {"choice": "required", "tools": ()}],
)
def test_what_cannot_be_called_is_refused(model: Model, options: dict[str, Any]) -> None:
    """A named choice never becomes another one."""
    with pytest.raises(RequestError) as caught:
        asked_of(model, "Qwen3-Coder", **options)
    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize("name", ["google-gemma-2-2b-it", "Qwen-Qwen3-0.6B", "Qwen3-Coder"])
def test_a_tool_that_is_too_deep(model: Model, name: str) -> None:
    """It is named, wherever one comes to its end."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(3000):
        schema = {"anyOf": [schema]}
    deep = Tool(name="sky", parameters={"type": "object", "properties": {"at": schema}})
    with pytest.raises(RequestError) as caught:
        asked_of(model, name, tools=(deep,))
    assert caught.value.param == "tools"


@pytest.mark.parametrize("name", ["Qwen-Qwen3-0.6B", "Qwen3-Coder"])
def test_a_role_that_the_template_leaves_out(model: Model, name: str) -> None:
    """Its words are the user's, whether or not the template shows any role."""
    wizard = (Message(role="user", content="x"), Message(role="wizard", content="Abracadabra"))
    (prompt,) = asked_of(model, name, messages=wizard).prompts
    assert "user\nwizard: Abracadabra<" in prompt.text
