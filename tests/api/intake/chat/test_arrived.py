"""A message that the template leaves out is told."""

from __future__ import annotations

import pytest

from worker.api.intake.chat.asking import check_arrived
from worker.chat.message import Call, Message
from worker.chat.reading.answer import ThoughtTags
from worker.errors import RequestError

TAGS = ThoughtTags("<think>", "</think>")


def check(message: Message, text: str) -> None:
    check_arrived([message], text, TAGS, "messages")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (" abra ", "<wizard>abra"),
        ("one two\nthree", "one  two three"),
        ('{"a": "Zürich"}', '"{\\"a\\": \\"Zürich\\"}"'),
        ("Zürich", '"Z\\u00fcrich"'),
        ("", "anything"),
        (None, "anything"),
        ("?!", "anything"),
        ("<think>old</think>", "anything"),
        ("<think>never closed", "anything"),
    ],
)
def test_what_arrived(content: str | None, text: str) -> None:
    """Words may be formed anew, and old thoughts may go."""
    check(Message(role="user", content=content), text)


def test_what_did_not() -> None:
    """A message of whose words none is in the prompt is named, with its role."""
    with pytest.raises(RequestError, match="no place for message 1, of the role wizard") as caught:
        check(Message(role="wizard", content=" abra "), "<user>")
    assert caught.value.param == "messages"
    assert "'abra'" in caught.value.message
    with pytest.raises(RequestError, match="message 1"):
        check(Message(role="assistant", calls=(Call("a", "sky", "{}"),)), "<user>")
    with pytest.raises(RequestError, match="message 1"):
        check(Message(role="assistant", content="<think>x</think>said"), "<user> x")
