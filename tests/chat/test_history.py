"""What templates are told of calls, results, thoughts and tools."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chat.dialects.telling import TOOLS, format_of
from tests.support.cases import for_each
from tests.support.models import templates
from worker.chat.message import Call, Message
from worker.chat.thinking import Thinking

pytestmark = pytest.mark.skipif(not templates.names(), reason=templates.WHY_NOT)

USER = Message(role="user", content="Well?")
CALLS = (Call("abcdefgh1", "sky", '{"at": "Rome"}'), Call("abcdefgh2", "sea", ""))
ASKED = Message(role="assistant", calls=CALLS, thought="Rain, maybe")
RESULTS = (
    Message(role="tool", content="blue", call_id="abcdefgh1", name="sky"),
    Message(role="tool", content="green", call_id="abcdefgh2", name="sea"),
)


def rendered(name: str, *messages: Message, tools: Any = TOOLS, **options: Any) -> str:
    given: dict[str, Any] = {
        "thinking": Thinking(), "add_generation_prompt": True, "continues": False,
        "variables": {}, **options,
    }  # fmt: skip
    return format_of(name).conversation(messages, tools, **given).text


@for_each("name", templates.names())
def test_a_loop_of_calls(name: str) -> None:
    """The model reads the tools, what it called, with which arguments, and each result, once."""
    text = rendered(name, USER, ASKED, *RESULTS)
    said = text[text.rindex("Well?") :]
    first, second = said.index("sky"), said.rindex("sea")
    assert first < said.index("Rome") < said.rindex("green")
    assert said.count("blue") == said.count("green") == 1
    assert said.index("blue") < said.index("green")
    assert first < second
    assert '\\"at' not in said
    system = text[: text.rindex("Well?")]
    assert "days" in system
    assert "sky" in system


# One moves the system part to the last question.
@for_each("name", [name for name in templates.names() if "Mistral-Nemo" not in name])
def test_without_tools(name: str) -> None:
    """A plain conversation renders with each template, whatever it likes tools to be."""
    answer = Message(role="assistant", content="Yes.")
    text = rendered(name, Message(role="system", content="Short."), USER, answer, USER, tools=())
    assert text.index("Short.") < text.index("Well?") < text.index("Yes.") < text.rindex("Well?")


@pytest.mark.parametrize("name", templates.names())
def test_a_role_that_no_template_knows(name: str) -> None:
    """Its words are the user's, with the role in front, and its calls an assistant's."""
    critic = Message(role="critic", content="No.")
    answer = Message(role="assistant", content="Yes.")
    assert "critic: No." in rendered(name, USER, answer, critic, tools=())
    called = Message(role="critic", calls=CALLS)
    assert "Rome" in rendered(name, USER, called, *RESULTS)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Qwen-Qwen3-0.6B", "<think>\nRain, maybe\n</think>"),
        ("GLM-4.6", "<think>Rain, maybe</think>"),
        ("openai-gpt-oss-120b", "<|channel|>analysis<|message|>Rain, maybe<|end|>"),
        ("google-gemma-4-31B-it", "<|channel>thought\nRain, maybe\n<channel|>"),
        ("upstage-Solar-Open-100B", "<|think|>Rain, maybe<|end|>"),
        ("mistralai-Ministral-3-14B-Reasoning-2512", "[THINK]Rain, maybe[/THINK][TOOL_CALLS]sky"),
        ("LFM2.5-8B-A1B", "<think>Rain, maybe</think>"),
    ],
)
def test_thoughts_are_fed_back(name: str, shown: str) -> None:
    """Between calls, under the name that the template reads."""
    assert shown in rendered(name, USER, ASKED, *RESULTS)


def test_thoughts_that_only_a_thinking_model_reads() -> None:
    """The template shows them where it is told to think."""
    on = Thinking(is_on=True)
    text = rendered("deepseek-ai-DeepSeek-V3.2", USER, ASKED, *RESULTS, thinking=on)
    assert "<think>Rain, maybe</think>" in text


def test_a_thought_beside_text_and_calls() -> None:
    """Where the template takes only one of them, nothing is lost."""
    asked = Message(role="assistant", content="I look.", thought="Rain, maybe", calls=CALLS[:1])
    text = rendered("openai-gpt-oss-120b", USER, asked, RESULTS[0])
    assert "Rain, maybe\n\nI look.<|end|>" in text


def test_odd_arguments() -> None:
    """What is no JSON is shown as the text that it is; null is no argument."""
    odd = Message(role="assistant", calls=(Call("a", "sky", "at Rome"), Call("b", "sea", "null")))
    text = rendered("Qwen-Qwen3-0.6B", USER, odd)
    assert '{"name": "sky", "arguments": at Rome}' in text
    assert '{"name": "sea", "arguments": {}}' in text


def test_a_template_that_knows_no_tools() -> None:
    """The tools stand in the system part, in our words; results come as the user's."""
    system = Message(role="system", content="Be kind.")
    text = rendered("google-gemma-2-2b-it", system, USER, ASKED, *RESULTS)
    assert text.startswith("<s><start_of_turn>user\nBe kind.\n\nYou can call these tools.")
    assert '<tool_call>{"name": "sky", "arguments": {"at": "Rome"}}</tool_call>' in text
    assert "<start_of_turn>user\nResult of sky:\nblue\n\nResult of sea:\ngreen<end_of_turn>" in text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("ibm-granite-granite-3.3-2B-Instruct", '<|tool_call|>[{"name": "sky", "arguments": '
         '{"at": "Rome"}}, {"name": "sea", "arguments": {}}]<|end_of_text|>'),
        ("LFM2-8B-A1B", "<|tool_call_start|>[sky(at='Rome'), sea()]<|tool_call_end|><|im_end|>"),
    ],
)  # fmt: skip
def test_a_template_that_shows_no_calls(name: str, shown: str) -> None:
    """They stand in the content as the model writes them."""
    assert shown in rendered(name, USER, ASKED, *RESULTS)


def test_its_own_words_are_the_example() -> None:
    """A template that shows calls but no tools is given both."""
    text = rendered("deepseek-ai-DeepSeek-V3.1", USER)
    assert '<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{"KEY": "VALUE"}<｜tool▁call▁end｜>' in text


@for_each("name", templates.names())
@for_each("order", ["calls first", "text, then calls", "calls last", "thought last"])
@for_each("speaks", [False, True])
def test_no_word_is_lost_in_odd_orders(name: str, order: str, speaks: bool) -> None:
    """Whoever speaks first or last, with the system part in front and the turn answered or not."""
    system = Message(role="system", content="zqsystem")
    asked = Message(role="assistant", content="zqtext", thought="Rain", calls=CALLS)
    messages = {
        "calls first": [ASKED, *RESULTS],
        "text, then calls": [system, USER, Message(role="assistant", content="zqtext"), ASKED],
        "calls last": [system, USER, asked],
        "thought last": [system, USER, asked, *RESULTS, Message(role="assistant", thought="zqend")],
    }[order]
    if order in ("text, then calls", "calls last"):
        messages += RESULTS if speaks else ()
    elif speaks:
        messages += [Message(role="assistant", content="zqanswer"), USER]
    text = rendered(name, *messages)
    said = [word for each in messages for word in (each.content, *(c.name for c in each.calls))]
    assert [word for word in said if word and word not in text] == []
    assert "Rome" in text


def test_results_where_nothing_was_called() -> None:
    """They keep their turn where the template has one for them, as transformers shows them."""
    given = (Message(role="tool", content="42", is_error=True), USER)
    text = rendered("Qwen-Qwen2.5-7B-Instruct", *given, tools=())
    assert "<tool_response>\nError: 42\n</tool_response>" in text
    assert "without a call" not in text
