"""What the official package makes of our bytes, without its lenience."""

from __future__ import annotations

from typing import Any, cast

from anthropic import BaseModel
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.shared import ErrorResponse
from pydantic import TypeAdapter

_EVENTS: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)


def message(data: bytes | str) -> Message:
    """A whole reply, strictly in its types."""
    return _known(Message.model_validate_json(data, strict=True))


def error(data: bytes | str) -> ErrorResponse:
    """An error, strictly in its types."""
    return _known(ErrorResponse.model_validate_json(data, strict=True))


def events(text: str) -> list[RawMessageStreamEvent]:
    """A stream's events but pings; each strictly in its type and under its name."""
    *frames, rest = text.split("\n\n")
    assert rest == ""
    found: list[RawMessageStreamEvent] = []
    for frame in frames:
        name, data = frame.split("\n")
        if name == "event: ping":
            assert data == 'data: {"type":"ping"}'
            continue
        event = _known(_EVENTS.validate_json(data.removeprefix("data: "), strict=True))
        assert name == f"event: {event.type}"
        found.append(event)
    return found


def _known(value: Any) -> Any:
    """The value, which has no field that its type does not know."""
    if isinstance(value, BaseModel):
        extra = set(value.model_extra or ()) - {"n_prompt_tokens", "n_ctx"}  # of an error, ours
        assert not extra, extra
        for name in value.model_fields_set:
            _known(getattr(value, name))
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _known(item)
    return value  # pyright: ignore[reportUnknownVariableType]
