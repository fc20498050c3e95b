"""The official client's types as judges of what is sent: strict types, no field that they lack."""

from __future__ import annotations

import json
from typing import Any, cast, get_args

import pydantic
from openai.types.responses import Response, ResponseStreamEvent

# What this worker adds: to a response, and to the tokens in an event, which have ids and bytes.
OURS: dict[str, set[str]] = {
    "Response": {"store", "timings", "truncated", "warnings"}, "Logprob": {"bytes", "id"},
    "LogprobTopLogprob": {"bytes", "id"}, "ResponseInProgressEvent": {"prompt_progress"},
}  # fmt: skip
# get_args: Annotated -> Union -> the events
EVENTS = {
    get_args(kind.model_fields["type"].annotation)[0]: kind
    for kind in get_args(get_args(ResponseStreamEvent)[0])
}


def response(data: str | bytes) -> Response:
    """A whole response."""
    return _judged(Response.model_validate_json(data, strict=True))


def events(stream: str) -> list[Any]:
    """The events of a stream, each under its own name, numbered from 0."""
    found: list[Any] = []
    assert stream.endswith("\n\n")
    for frame in stream.removesuffix("\n\n").split("\n\n"):
        if frame == ":":  # a machine that is busy says nothing for a second
            continue
        name, data = frame.split("\n")
        kind = json.loads(data.removeprefix("data: "))["type"]
        assert name == f"event: {kind}"
        text = data.removeprefix("data: ")
        found.append(_judged(EVENTS[kind].model_validate_json(text, strict=True)))
    assert [event.sequence_number for event in found] == list(range(len(found)))
    return found


def _judged(model: Any) -> Any:
    """The model, once all that is in it is known to its type."""
    if isinstance(model, pydantic.BaseModel):
        extra = set(model.__pydantic_extra__ or {})
        name = type(model).__name__
        assert extra <= OURS.get(name, set()), (name, extra)
        for _, value in model:
            _judged(value)
    elif isinstance(model, list):
        for value in model:  # pyright: ignore[reportUnknownVariableType]
            _judged(value)
    return cast("Any", model)
