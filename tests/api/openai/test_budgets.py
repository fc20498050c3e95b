"""A budget of thoughts: the model is made to close them, over HTTP."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.support.chats import TOOLS, streamed, whole
from tests.support.models.speaking import FAMILIES
from tests.support.programs.processes import Server, serving

THOUGHT = "One two three four five six seven eight nine ten."


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A model that thinks, then calls."""
    speaker = FAMILIES["qwen3"]
    recital = speaker.recital(speaker.answer(THOUGHT, "", [("sea", {})]))
    path = speaker.write_model(tmp_path_factory.mktemp("budget") / "model.gguf", [recital])
    with serving("--model", path, "--ctx-size", "4096", "-np", "1") as server:
        yield server


@pytest.mark.parametrize("field", ["reasoning_budget_tokens", "thinking_budget_tokens"])
@pytest.mark.parametrize("more", [{}, {"tools": TOOLS}], ids=["plain", "tools"])
def test_a_budget_ends_thoughts(qwen: Server, field: str, more: dict[str, Any]) -> None:
    """The thought is cut there and closed; what it costs is told. Without a budget it goes on."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello?"}], **more}
    free = whole(qwen, body)
    assert free.thought == THOUGHT
    told = whole(qwen, {**body, field: 5})
    assert told == streamed(qwen, {**body, field: 5})
    assert told.thought
    assert THOUGHT.startswith(told.thought)
    assert len(told.thought) < len(THOUGHT)
    assert whole(qwen, {**body, field: 0}).thought == ""
    assert whole(qwen, {**body, field: 500}) == free
