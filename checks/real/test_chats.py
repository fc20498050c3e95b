"""SmolLM2's template beside transformers' rendering of it."""

from __future__ import annotations

import pytest

from checks.real.chats import CHATS
from checks.real.conftest import Real
from tests.support.programs.processes import Server


@pytest.fixture
def templated(real: Real) -> Real:
    """A model that has a template: Gemma's base model has none."""
    if not real.values.chats:
        pytest.skip(f"{real.name} has no chat template")
    return real


def test_prompts(server: Server, templated: Real) -> None:
    """Each conversation becomes the reference's tokens."""
    for messages, expected in zip(CHATS, templated.values.chats, strict=True):
        rendered = server.post({"messages": messages}, "/apply-template")
        assert rendered.status_code == 200, rendered.text
        body = {"content": rendered.json()["prompt"], "parse_special": True}
        assert server.post(body, "/tokenize").json()["tokens"] == expected, messages


def test_answers_read_the_prompt(server: Server, templated: Real) -> None:
    """A chat's prompt has as many tokens as the reference's."""
    for messages, expected in zip(CHATS[:4], templated.values.chats, strict=False):
        body = {"messages": messages, "max_tokens": 1, "temperature": 0}
        usage = server.post(body, "/v1/chat/completions").json()["usage"]
        assert usage["prompt_tokens"] == len(expected)
