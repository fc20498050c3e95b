"""Where thoughts begin and end, and how they are switched."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chat.dialects.telling import calls, format_of, told
from tests.support.cases import for_each
from tests.support.models import templates
from worker.chat.message import Message
from worker.chat.reader import Content, Thought
from worker.chat.thinking import Thinking

pytestmark = pytest.mark.skipif(not templates.names(), reason=templates.WHY_NOT)

OFF = {"enable_thinking": False, "thinking": False}
USER = Message(role="user", content="What is a <think> tag?")
TAGS = {
    "Qwen-Qwen3-0.6B": ("<think>", "</think>"),
    "Qwen-QwQ-32B": ("<think>", "</think>"),
    "deepseek-ai-DeepSeek-V3.1": ("<think>", "</think>"),
    "ByteDance-Seed-OSS": ("<seed:think>", "</seed:think>"),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("[THINK]", "[/THINK]"),
    "google-gemma-4-31B-it": ("<|channel>thought\n", "<channel|>"),
    "tencent-Hy3": ("<think:opensource>", "</think:opensource>"),
    "Apriel-1.6-15b-Thinker-fixed": ("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
    "meta-llama-Llama-3.1-8B-Instruct": ("", ""),
    "openai-gpt-oss-120b": ("", ""),
}


def prompt_of(name: str, *messages: Message, **options: Any) -> str:
    given: dict[str, Any] = {
        "thinking": Thinking(), "add_generation_prompt": True, "continues": False,
        "variables": {}, **options,
    }  # fmt: skip
    return format_of(name).conversation(messages or (USER,), (), **given).text


@pytest.mark.parametrize(("name", "tags"), TAGS.items())
def test_tags_are_found(name: str, tags: tuple[str, str]) -> None:
    """From what the template shows, or what it names."""
    found = format_of(name).thoughts.tags
    assert (found.open, found.close) == tags


@pytest.mark.parametrize(
    ("name", "on", "off"),
    [
        ("Qwen-Qwen3-0.6B", False, False),
        ("Qwen3.5-4B", True, False),
        ("GLM-4.7-Flash", True, False),
        ("deepseek-ai-DeepSeek-V3.1", True, False),
        ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", True, True),
        ("CohereForAI-c4ai-command-r7b-12-2024-tool_use", False, False),
        ("google-gemma-4-31B-it", False, False),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", True, False),
    ],
)
def test_answers_that_begin_inside_a_thought(name: str, on: bool, off: bool) -> None:
    """The prompt says it, and a question that names the tag does not."""
    made = format_of(name)
    for thinking, inside in ((Thinking(is_on=True), on), (Thinking(is_on=False), off)):
        prompt = prompt_of(name, thinking=thinking)
        assert made.thoughts.is_inside(prompt) is inside, prompt[-80:]
        kind = Thought if inside else Content
        assert told(made, "Hm", prompt=prompt) == [kind("Hm")]


def test_a_prefill_may_open_and_close_a_thought() -> None:
    """What the assistant is made to begin with counts."""
    for prefill, kind in (("<think>Hm", Thought), ("<think>Hm</think>", Content)):
        begun = Message(role="assistant", content=prefill)
        prompt = prompt_of("Qwen-Qwen2.5-7B-Instruct", USER, begun, continues=True)
        assert prompt.endswith(prefill)
        assert told(format_of("Qwen-QwQ-32B"), "so", prompt=prompt) == [kind("so")]


@for_each("name", templates.names())
def test_what_goes_on(name: str) -> None:
    """A thought, a thought with an answer, and an answer end the prompt as they were written."""
    made = format_of(name)
    ends = made.thought_end(prompt_of(name))

    def begun(**said: Any) -> str:
        return prompt_of(name, USER, Message(role="assistant", **said), continues=True)

    for space in ("", " ", "\n"):
        prompt = begun(content=f"Rome is{space}")
        assert prompt.endswith(f"Rome is{space}")
        assert told(made, "big", prompt=prompt) == [Content("big")]
        if ends is None:
            continue
        for content in (None, "", " "):
            prompt = begun(thought=f"Let me{space}", content=content)
            assert prompt.endswith(f"Let me{space}")
            assert told(made, "see", prompt=prompt) == [Thought("see")]
        prompt = begun(thought="Let me see.", content=f"Rome is{space}")
        assert prompt.endswith(f"Rome is{space}")
        assert prompt.count("Let me see.") == 1
        assert told(made, "big", prompt=prompt) == [Content("big")]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("<think>\nRain?\n\nNo.\n</think>\n\nSun.\n", [Thought("Rain?\n\nNo."), Content("Sun.\n")]),
        ("\n <think>Rain?</think>", [Thought("Rain?")]),
        ("<think></think> Sun", [Content("Sun")]),
        ("<think>Rain", [Thought("Rain")]),
        ("Sun <think>Rain</think>", [Content("Sun <think>Rain</think>")]),
        ("</think>Sun", [Content("Sun")]),
        (" Sun \n", [Content(" Sun \n")]),
        ("<think>a</think><think>b</think>c", [Thought("ab"), Content("c")]),
        ("<think><think>a</think>b", [Thought("a"), Content("b")]),
        ("<think>a <think> b</think>c", [Thought("a <think> b"), Content("c")]),
        ("<thin", []),
        ("Sun <thin", [Content("Sun <thin")]),
        ("<think>a</thi", [Thought("a")]),
        ("x <tool_call> y", [Content("x <tool_call> y")]),
        (
            '<think>Hm <tool_call> x <tool_call>{"name": "sky"}</tool_call>Sun',
            [Thought("Hm <tool_call> x"), *calls(("sky", "{}")), Content("Sun")],
        ),
        (
            '<think>Hm <tool_call>{"name": "sky"}</tool_call> or so</think>Sun',
            [Thought('Hm <tool_call>{"name": "sky"}</tool_call> or so'), Content("Sun")],
        ),
        (
            '<think>So: <tool_call>{"name": "sky"}</tool_call>\n</think>\n'
            '<tool_call>{"name": "sea"}</tool_call>',
            [Thought('So: <tool_call>{"name": "sky"}</tool_call>'), *calls(("sea", "{}"))],
        ),
        (
            '<think>Hm <tool_call>{"name": "sky", "arguments": {"at": "</think>"}}</tool_call>',
            [Thought("Hm"), *calls(("sky", '{"at": "</think>"}'))],
        ),
        (
            '<think>Hm <tool_call>{"name": "sky"}</tool_call><think>So</think>Sun',
            [Thought("Hm"), *calls(("sky", "{}")), Thought("So"), Content("Sun")],
        ),
        (
            '<tool_call>{"name": "sky"}</tool_call>\n<think>Hm</think>Sun',
            [*calls(("sky", "{}")), Thought("Hm"), Content("Sun")],
        ),
    ],
)
def test_thoughts_and_content(text: str, events: list[Any]) -> None:
    """White space around thoughts is left out; damaged things stay."""
    assert told(format_of("Qwen-Qwen3-0.6B"), text) == events


def test_thoughts_that_stay_inline() -> None:
    """With their tags, also with the one that stands in the prompt."""
    text = "<think>\nRain?\n</think>\n\nSun.\n"
    inline = Thinking(inline=True)
    assert told(format_of("Qwen-Qwen3-0.6B"), text, thinking=inline) == [Content(text)]
    made = format_of("Qwen3.5-4B")
    prompt = prompt_of("Qwen3.5-4B")
    found = told(made, "Rain?</think>Sun", thinking=inline, prompt=prompt)
    assert found == [Content("<think>\nRain?</think>Sun")]
    assert told(made, "<think>\nRain?", thinking=inline, prompt=prompt) == [
        Content("<think>\nRain?")
    ]


@pytest.mark.parametrize(
    ("name", "thinking", "variables"),
    [
        ("Qwen-Qwen3-0.6B", Thinking(), {}),
        ("Qwen-QwQ-32B", Thinking(), {"enable_thinking": True}),
        ("Qwen-QwQ-32B", Thinking(is_on=False), {"enable_thinking": False}),
        ("Qwen-Qwen3-0.6B", Thinking(effort="none"), {"enable_thinking": False}),
        ("Qwen-Qwen3-0.6B", Thinking(effort="high"), {"enable_thinking": True}),
        (
            "deepseek-ai-DeepSeek-V3.1",
            Thinking(is_on=False),
            {"enable_thinking": False, "thinking": False},
        ),
        ("openai-gpt-oss-120b", Thinking(effort="low"), {"reasoning_effort": "low"}),
        ("ByteDance-Seed-OSS", Thinking(is_on=False), {"thinking_budget": 0}),
        ("MiniMax-M3", Thinking(is_on=False), {"thinking_mode": "disabled"}),
        ("meta-llama-Llama-3.1-8B-Instruct", Thinking(is_on=True, effort="low"), {}),
    ],
)
def test_variables(name: str, thinking: Thinking, variables: dict[str, Any]) -> None:
    """The template gets those that make a difference to it."""
    assert format_of(name).thoughts.variables(thinking) == variables


def test_the_clients_variables_count() -> None:
    """Those of the request go before those of the API's own field."""
    prompt = prompt_of(
        "Qwen-Qwen3-0.6B", thinking=Thinking(is_on=True), variables={"enable_thinking": False}
    )
    assert prompt.endswith("</think>\n\n")


def test_a_tool_may_be_called_as_the_tags() -> None:
    """The format does not mind."""
    assert told(format_of("Qwen-Qwen3-0.6B"), "</think>", tools=()) == []
