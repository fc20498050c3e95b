"""A stream's parts: what is passed on, and what waits for its end."""

from __future__ import annotations

import pytest

from gguf_fleet.front.events import WholeEvents

SSE, LINES = "text/event-stream", "application/x-ndjson"


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
def test_whole_events_pass(kind: str, parts: list[bytes], passed: list[bytes]) -> None:
    """What is not whole waits; at the end all was passed on."""
    events = WholeEvents(kind)
    told = [whole for part in parts if (whole := events.take(part))]
    assert told == passed
    assert b"".join([*told, events.end()]) == b"".join(parts)


def test_what_is_too_long_to_wait_for_passes() -> None:
    """No event without an end fills the memory."""
    events = WholeEvents(SSE)
    told = b"".join(events.take(b"a" * 2**16) for _ in range(17))
    assert told == b"a" * (17 * 2**16)
