"""What tools return and what was thought, in the forms that clients give them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from worker.api.intake.chat.past_message import PastMessage, message_of, output_of
from worker.api.intake.chat.placeholders import note_of
from worker.api.intake.media_inputs import MediaInputs

OWN: list[Any] = [
    {"type": ["string", "null"], "k": 1},
    {"type": {"name": "fire"}},
    [{"type": ["a"]}],
    {"type": "file", "name": "n", "path": "p", "content": "c"},
    {"type": "video", "id": "v", "channel": "c", "title": "t"},
    {"type": "docker_image", "name": "n", "tag": "t"},
    {"type": "document", "text": "a", "pages": [1]},
]


@pytest.mark.parametrize("value", OWN, ids=json.dumps)
def test_a_tool_s_own_object(value: Any) -> None:
    """It is JSON, whatever it calls its type."""
    assert json.loads(output_of(value, MediaInputs())) == value


def test_parts_of_an_output() -> None:
    """They are their texts, with fields that only programs read left out."""
    parts = [{"type": "text", "text": "a", "_meta": {"x": 1}}, {"type": "image", "data": "eA=="}]
    assert output_of(parts, MediaInputs()) == "a\n[image]"


def test_data_is_no_event_stream() -> None:
    """A text of server-sent events is no URL of data."""
    assert "tail" in note_of("x", {"input": 'data: {"x":1}, tail'}, MediaInputs())
    assert "tail" not in note_of("x", {"input": "data:image/png;base64,tail"}, MediaInputs())


@pytest.mark.parametrize(
    "field",
    [
        {"reasoning_text": "why"},
        {"thinking_blocks": [{"type": "thinking", "thinking": "why", "signature": "x"}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "why"},
                               {"type": "reasoning.encrypted", "data": "x"}]},
        {"reasoning": "why", "reasoning_details": [{"type": "reasoning.text", "text": "why"}]},
    ],
)  # fmt: skip
def test_thoughts_of_others(field: dict[str, Any]) -> None:
    """They are read once, under each name that clients send back."""
    given = msgspec.convert({"content": "so", **field}, PastMessage)
    said = message_of(given, "assistant", MediaInputs())
    assert (said.content, said.thought) == ("so", "why")


@pytest.mark.parametrize("name", ["content", "output", "result", "text"])
def test_a_result_under_another_name(name: str) -> None:
    """Of a tool's message."""
    given = msgspec.convert({name: "blue", "tool_call_id": "a"}, PastMessage)
    assert message_of(given, "tool", MediaInputs()).content == "blue"
