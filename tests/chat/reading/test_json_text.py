"""JSON that is checked while it is written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import for_each
from worker.chat.reading.json_text import JsonText
from worker.chat.reading.source import DamagedError

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def read(text: str, size: int) -> tuple[str, str]:
    """(what was passed on, what was left), of a text that comes in pieces of this size."""
    checked, passed, left = JsonText(), "", ""
    for place in range(0, len(text), size):
        piece = text[place : place + size]
        part, count = checked.take(piece)
        passed += part
        if checked.is_done or checked.is_damaged:
            left = text[place + count :]
            break
    if checked.is_damaged:
        raise DamagedError
    checked.end()
    return passed, left


@settings(deadline=None, max_examples=100)
@given(value=VALUES, size=st.integers(1, 9), indent=st.sampled_from([None, 1]))
def test_what_python_writes_passes_unchanged(value: Any, size: int, indent: int | None) -> None:
    """And ends where the value ends."""
    for is_ascii in (True, False):
        text = json.dumps([value], ensure_ascii=is_ascii, indent=indent)
        assert read(text + " more", size) == (text, " more")


SIGNS = '{}[]",:0123456789.-+eEtrufalsn\\ \n\x01'


@settings(deadline=None, max_examples=200)
@given(text=st.text(SIGNS, max_size=12), size=st.integers(1, 4))
def test_it_takes_what_python_takes(text: str, size: int) -> None:
    """But for control characters in strings, which become escapes."""
    try:
        passed, left = read(text, size)
    except DamagedError:
        passed, left = "", "damaged"
    try:
        wanted = json.loads(text, strict=False)
    except ValueError:
        assert left.strip()
    else:
        assert left.strip() == ""
        assert json.loads(passed) == wanted


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", "[" * 201 + "]" * 201, "[" + "1" * 600 + "]"]
)
def test_what_python_takes_and_json_does_not(text: str) -> None:
    """Nor what is too deep or too long for others to read."""
    with pytest.raises(DamagedError):
        read(text, 7)


@for_each("size", range(1, 8))
@for_each(
    ("text", "wanted"),
    [
        (r"\ud83d\ude00", r"\ud83d\ude00"),
        (r"\ud83d", r"\ufffd"),
        (r"\ude00 b", r"\ufffd b"),
        (r"\ud83da", r"\ufffda"),
        (r"\ud83d\n", r"\ufffd\n"),
        (r"\ud83d\uD83D\uDE00", r"\ufffd\uD83D\uDE00"),
    ],
)
def test_half_a_surrogate_pair(text: str, wanted: str, size: int) -> None:
    """It is no character, and strict readers would refuse the whole answer."""
    assert read(f'["{text}"]', size) == (f'["{wanted}"]', "")
