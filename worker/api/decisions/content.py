"""What a state or a question says, as the model reads it: texts, JSON, pictures."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from worker.api.intake.chat.content_parts import check_seen, medium_words
from worker.api.intake.media_inputs import MediaInputs
from worker.errors import RequestError
from worker.limits import JSON_BYTES, JSON_DEPTH, JSON_VALUES


def picture(address: str, place: str, media: MediaInputs) -> str:
    """The mark of a picture: a data URL, base64, or where it is to be had. Raises RequestError for
    one that the model does not see."""
    part = {"type": "input_image", "image_url": address}
    check_seen(part, place, place, media)
    return medium_words(part, media)


def json_text(value: Any, place: str) -> str:
    """A value without spaces, as long as it is within the bounds of an input_json. Raises
    RequestError."""
    _check_size(value, place)
    text = msgspec.json.encode(value)
    if len(text) > JSON_BYTES.most:
        raise RequestError(
            f"{place} has {len(text)} bytes as JSON; {JSON_BYTES.most} is the most.", param=place
        )
    return text.decode()


def _check_size(value: Any, place: str) -> None:
    """Level by level: what is deep must not use up the stack."""
    level, count, depth = [value], 1, 0
    while level:
        inside: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inside += cast("dict[str, Any]", each).values()
            elif isinstance(each, list):
                inside += cast("list[Any]", each)
        if any(isinstance(each, dict | list) for each in level):
            depth += 1
        count += len(inside)
        if depth > JSON_DEPTH.most:
            raise RequestError(
                f"{place} has more than {JSON_DEPTH.most} lists and objects in each other.",
                param=place,
            )
        if count > JSON_VALUES.most:
            raise RequestError(f"{place} has more than {JSON_VALUES.most} values.", param=place)
        level = inside
