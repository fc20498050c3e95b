"""A stream's parts: what is passed on, and what waits for its end."""

from __future__ import annotations

import pytest

from worker.fleet.front.events import WholeEvents

SSE, LINES = b"text/event-stream", b"application/x-ndjson"


@pytest.mark.parametrize(
    ("kind", "parts", "passed"),
    [
        (SSE, [b"a\n\n", b"b\n\nc\n\n"], [b"a\n\n", b"b\n\nc\n\n"]),
        (SSE, [b"a\n\nb", b"b\n\n"], [b"a\n\n", b"bb\n\n"]),
        (SSE, [b"a\n", b"\n", b"b"], [b"a\n\n"]),
        (SSE, [b"a\n", b"\nb", b"\n", b"\nc"], [b"a\n\n", b"b\n\n"]),
        (LINES, [b"1\n", b"2", b"2\n3\n4"], [b"1\n", b"22\n3\n"]),
    ],
)
def test_whole_events_pass(kind: bytes, parts: list[bytes], passed: list[bytes]) -> None:
    """What is not whole waits; at the end all was passed on."""
    told: list[bytes] = []
    events = WholeEvents(told.append, kind)
    for part in parts:
        events.take(part)
    assert told == passed
    events.end()
    assert b"".join(told) == b"".join(parts)


def test_what_is_too_long_to_wait_for_passes() -> None:
    """No event without an end fills the memory."""
    told: list[bytes] = []
    events = WholeEvents(told.append, SSE)
    for _ in range(17):
        events.take(b"a" * 2**16)
    assert b"".join(told) == b"a" * (17 * 2**16)
