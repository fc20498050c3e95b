"""Token bytes to text, stop strings, log-probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.engine.output import Detokenizer, LineLimit, StopMatcher, token_logprob


@settings(deadline=None)
@given(st.text(), st.data())
def test_text_survives_any_cut(text: str, data: st.DataObject) -> None:
    """Valid UTF-8 comes out whole however its bytes are cut into tokens."""
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    decoder = Detokenizer()
    assert "".join(map(decoder.feed, pieces)) + decoder.flush() == text


def test_a_bad_byte_silences_nothing() -> None:
    """A byte that never becomes valid UTF-8 is replaced and what follows is shown."""
    decoder = Detokenizer()
    assert decoder.feed(b"a\xff") == "a\ufffd"
    assert decoder.feed(b"\xe2\x82") == ""
    assert decoder.feed(b"b") == "\ufffdb"
    assert decoder.feed(b"\xf0\x9f") == ""
    assert decoder.flush() == "\ufffd"


@given(
    st.text("abc", max_size=40),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
    st.data(),
)
def test_stop_strings_at_any_border(text: str, stops: list[str], data: st.DataObject) -> None:
    """What is shown ends before the first stop string that appears, however the text is cut."""
    matcher = StopMatcher(tuple(stops))
    shown, rest, stopped = "", text, False
    while rest and not stopped:
        size = data.draw(st.integers(1, len(rest)))
        part, stopped = matcher.feed(rest[:size])
        shown, rest = shown + part, rest[size:]
    if not stopped:
        shown += matcher.flush()
    seen = text[: len(text) - len(rest)]
    found = [at for stop in stops if (at := seen.find(stop)) >= 0]
    assert stopped == bool(found)
    assert matcher.found == (
        min((seen.find(s), s) for s in stops if s in seen)[1] if found else None
    )
    assert shown == (seen[: min(found)] if found else text)


def test_nothing_is_held_back_without_need() -> None:
    """Only text that may begin a stop string waits."""
    matcher = StopMatcher(("END",))
    assert matcher.feed("abc E") == ("abc ", False)
    assert matcher.feed("N") == ("", False)
    assert matcher.feed("X") == ("ENX", False)
    assert matcher.feed("E") == ("", False)
    assert matcher.feed("NDabc") == ("", True)


@pytest.mark.parametrize("top", [0, 1, 3, 7])
def test_logprobs_are_a_softmax(top: int) -> None:
    """ln p comes from the softmax of the logits; the best equals the token's own bit for bit."""
    logits = np.array([0.5, -2, 3.25, 3.0, -90, 0, 1], np.float32)
    exact = [math.exp(float(x)) for x in logits]
    score = token_logprob(logits, 2, top)
    assert score.logprob == pytest.approx(math.log(exact[2] / sum(exact)), abs=1e-6)
    assert len(score.top) == top
    assert [token for token, _ in score.top] == [2, 3, 6, 0, 5, 1, 4][:top]
    if top:
        assert score.top[0][1] == score.logprob


@pytest.mark.parametrize("size", [1, 2, 3, 99])
@pytest.mark.parametrize(
    ("indent", "told"),
    [(0, "    a\n   b\n\n  c\nd"), (1, "    a\n   b\n\n  c"), (3, "    a\n   b\n")],
)
def test_lines_end_a_text(size: int, indent: int, told: str) -> None:
    """Whatever pieces it comes in; what is cut off was never shown."""
    text, limit, found = "    a\n   b\n\n  c\nd", LineLimit(indent), ""
    for place in range(0, len(text), size):
        shown, has_ended = limit.feed(text[place : place + size])
        found += shown
        if has_ended:
            break
    else:
        found += limit.flush()
    assert found == told
