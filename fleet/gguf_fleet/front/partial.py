"""What a client has of a stream, so that another replica can go on with it.

Workers put marks behind the events that they tell, which their clients never see:

    data: {...}                 events, as they are passed on
    :w [0,5613]                 then they hold this token of sequence 0
    :w [0,5613,[17],1]          and the sampler's place, the step that gave it; `:w []`: no token

Events go to the client once their mark is here, all or none: so what the client has and what the
next replica is told are the same.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping

import msgspec

from gguf_fleet.front.refusals import OLLAMA

# Where answers can go on; what a body asks for as a stream there. The first is Ollama's default.
_STREAMED = frozenset(
    "/v1/completions /v1/chat/completions /chat/completions /v1/responses /responses "
    "/v1/messages".split()
)
_OLLAMA_STREAMED = frozenset({"/api/chat", "/api/generate"})
HEADER, WRITTEN = "x-relay", "x-relay-written"
# A worker that marks its events says so.
MARKS = "x-relay-marks"
_BORDERS = {"text/event-stream": b"\n\n", "application/x-ndjson": b"\n"}
_MARK = b":w "
# Of events whose mark has not come.
_MOST = 16 << 20


def is_streamed(method: str, path: str, stream: object) -> bool:
    """Whether it asks for a stream that can go on at another replica. stream: the body's field"""
    if method != "POST":
        return False
    if path.startswith(OLLAMA):
        return path in _OLLAMA_STREAMED and stream is not False
    return path in _STREAMED and stream is True


class PartialAnswer:
    """One answer, at whichever replica.

    kind        its content type; empty: none has begun it
    num_tokens  that its client has
    """

    def __init__(self) -> None:
        self.kind = ""
        self.num_tokens = 0
        self.is_lost = False  # it has outgrown what is held back
        self._name = f"{uuid.uuid4().hex} {int(time.time())}"
        self._num_events = 0
        self._tokens: dict[int, list[int]] = {}
        self._places: dict[int, list[float]] = {}
        self._steps: dict[int, list[int | None]] = {}
        self._rest = b""

    @property
    def headers(self) -> Mapping[str, str]:
        """What a worker is told of the answer."""
        return {HEADER: self._name}

    def begin(self, kind: str) -> None:
        """A replica begins, or goes on: what the one before left unmarked its client never had."""
        self.kind, self._rest = kind, b""

    def state(self) -> bytes:
        """What the client has, as the next worker reads it in front of the body."""
        return msgspec.json.encode(
            {
                "events": self._num_events,
                "tokens": self._tokens,
                "places": self._places,
                "steps": self._steps,
            }
        )

    def take(self, data: bytes) -> bytes:
        """The next part comes: what can be passed on now."""
        border = _BORDERS[self.kind]
        *blocks, rest = (self._rest + data).split(border)
        found: list[bytes] = []
        group: list[bytes] = []
        for block in blocks:
            if not block.startswith(_MARK):
                group.append(block + border)
                continue
            self._note(block[len(_MARK) :])
            self._num_events += sum(not each.startswith(b":") for each in group)
            found += group
            group = []
        self._rest = b"".join(group) + rest
        if len(self._rest) > _MOST:
            self.is_lost = True
            found.append(self.end())
        return b"".join(found)

    def end(self) -> bytes:
        """Nothing follows: the last events have no mark."""
        rest, self._rest = self._rest, b""
        return rest

    def _note(self, mark: bytes) -> None:
        told = msgspec.json.decode(mark)
        if told:
            number, token, *more = told
            self._tokens.setdefault(number, []).append(token)
            self.num_tokens += 1
            if more:
                self._places[number] = more[0]
            self._steps.setdefault(number, []).append(more[1] if len(more) > 1 else None)
