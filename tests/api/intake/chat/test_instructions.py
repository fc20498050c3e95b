"""One system message at the beginning."""

from __future__ import annotations

import pytest

from worker.api.intake.chat.asking import with_one_system
from worker.chat.message import Message


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("u:hello", "u:hello"),
        ("s:a u:hello", "s:a u:hello"),
        ("d:a u:hello", "s:a u:hello"),
        ("s:a d:b s:c u:hello", "s:a\n\nb\n\nc u:hello"),
        ("s: d:b u:hello", "s:b u:hello"),
        ("s:a u:hello d:b a:yes s:c", "s:a u:hello s:b a:yes s:c"),
        ("d:a", "s:a"),
        ("", ""),
    ],
)
def test_one_system(given: str, expected: str) -> None:
    """Those at the beginning are joined; later ones stay where they are."""
    assert with_one_system(read(given)) == read(expected)


def read(text: str) -> list[Message]:
    """Messages of `role:content`, with a letter for the role."""
    roles = {"s": "system", "d": "developer", "u": "user", "a": "assistant"}
    parts = [part.split(":") for part in text.split(" ") if part]
    return [Message(role=roles[role], content=content) for role, content in parts]
