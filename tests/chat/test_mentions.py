"""What an answer says of the tags around thoughts stays in the history."""

from __future__ import annotations

import pytest

from tests.chat.dialects.telling import format_of
from tests.support.cases import for_each
from tests.support.models import templates
from worker.chat.message import Message
from worker.chat.reading.answer import ThoughtTags
from worker.chat.thinking import Thinking, without_mentions

TAGS = ThoughtTags("<think>", "</think>")
SAID = "Before zq the tag `</think>` ends it. After."


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (SAID, SAID.replace("</think>", "</think >")),
        ("<think>why</think>so", "<think>why</think>so"),
        ("why\n</think>\n\nso", "why\n</think>\n\nso"),
        ("so", "so"),
    ],
)
def test_a_mention(content: str, shown: str) -> None:
    """It is no tag; what ends a thought stays one."""
    (found,) = without_mentions([Message(role="assistant", content=content)], TAGS)
    assert found.content == shown
    said = Message(role="user", content=SAID)
    assert without_mentions([said], TAGS) == [said]


@for_each("name", templates.names())
def test_no_template_takes_it_for_a_tag(name: str) -> None:
    """What stands before it is there, with every template."""
    text = format_of(name).conversation(
        [Message(role="user", content="a"), Message(role="assistant", content=SAID),
         Message(role="user", content="b")],
        (), thinking=Thinking(), add_generation_prompt=True, continues=False, variables={},
    ).text  # fmt: skip
    assert "zq" in text
