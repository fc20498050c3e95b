"""Events to blocks: each opened with its own type, and the same whole as streamed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from anthropic.lib.streaming._messages import (  # pyright: ignore[reportPrivateUsage]
    accumulate_event,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.anthropic import oracle
from tests.api.intake.chat.scripted import Scripted
from worker.api.anthropic.exchange import SIGNATURE, Blocks
from worker.api.anthropic.schemas import (
    BlockEvent,
    MessageReply,
    MessageStart,
    MessageUsage,
    OutputDetails,
)
from worker.http import sse

SKY = '[sky:{"at": "Rome"}]'
TEXT = {"type": "text", "text": "I look."}
CALL: dict[str, Any] = {"type": "tool_use", "id": "call-0", "name": "sky", "input": {"at": "Rome"}}
NOW: dict[str, Any] = {"type": "tool_use", "id": "call-1", "name": "now", "input": {}}
RAIN = {"type": "thinking", "thinking": "Rain?", "signature": SIGNATURE}

Json = dict[str, Any]


def told(text: str, *, shows_thoughts: bool = True) -> tuple[list[Json], list[Json]]:
    """The blocks as the official package builds them from the events, and as told whole."""
    blocks, reader = Blocks(shows_thoughts=shows_thoughts), Scripted()
    events: list[BlockEvent] = []
    for character in text:
        events += blocks.take(reader.feed(character))
    events += blocks.take(reader.finish()) + blocks.close()
    usage = MessageUsage(1, 0, 0, 0, OutputDetails(0))
    first = MessageStart(MessageReply(id="m", model="m", content=[], usage=usage))
    frames = [sse.frame(e, name=str(e.__struct_config__.tag)).decode() for e in (first, *events)]
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in oracle.events("".join(frames)):
        snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
    streamed = [block.to_dict(exclude_none=True) for block in snapshot.content]
    return streamed, json.loads(msgspec.json.encode(blocks.whole()))


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("", []),
        ("I look.", [TEXT]),
        ("(Rain?)I look.", [RAIN, TEXT]),
        ("(Rain?)I look." + SKY, [RAIN, TEXT, CALL]),
        ("I look." + SKY + "[now:{}]", [TEXT, CALL, NOW]),
        (SKY + "(Rain?)[now:{}]I look.", [CALL, RAIN, NOW, TEXT]),
        # White space is a block only where there is nothing else, and before a text.
        ("(Rain?)\n\n" + SKY + "\n[now:]\n", [RAIN, CALL, NOW]),
        ("\n x", [{"type": "text", "text": "\n x"}]),
        ("\n", [{"type": "text", "text": "\n"}]),
    ],
)
def test_blocks(text: str, blocks: list[Json]) -> None:
    """In their order, each with its type, and the same streamed and whole."""
    assert told(text) == (blocks, blocks)


def test_hidden_thoughts() -> None:
    """Thoughts that are not to be shown leave an empty block with its signature."""
    streamed, whole = told("(Rain?)I look.", shows_thoughts=False)
    assert streamed == whole == [{**RAIN, "thinking": ""}, TEXT]


def test_a_call_that_never_ends() -> None:
    """A whole reply has its text; a stream has stopped its block before."""
    streamed, whole = told('I look.[sky:{"at": "Ro')
    assert streamed[0] == TEXT
    assert streamed[1]["type"] == "tool_use"
    assert streamed[2:] == [{"type": "text", "text": '[sky:{"at": "Ro'}]
    assert whole == [{"type": "text", "text": 'I look.[sky:{"at": "Ro'}]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", " ", "(b)", "(c )", SKY, "[now:]"]), max_size=12))
def test_streamed_is_whole(pieces: list[str]) -> None:
    """Whatever is said, a stream builds what a whole reply has."""
    streamed, whole = told("".join(pieces))
    assert streamed == whole
