"""A body of either API, whichever route it came to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from worker.api.decisions.openai_schemas import DecisionRequest
from worker.api.decisions.systemone import UnprocessableError, as_unprocessable
from worker.api.decisions.systemone_schemas import (
    DecisionAsset,
    JsonContent,
    SystemOneQuestion,
    SystemOneRequest,
)
from worker.api.intake.body import decode_json, invalid_field, struct_of
from worker.api.intake.multipart import MEDIA_TYPE, parts_of
from worker.errors import RequestError

_REQUEST = "request"  # the part that is JSON
_UNKNOWN_NAME = "[...]"  # how msgspec writes a name of a map
_UNKNOWN_OPTION = f"`$.criteria{_UNKNOWN_NAME}`"


class DecisionBody(msgspec.Struct):
    """parts: of a multipart body, beside its JSON"""

    asked: DecisionRequest | SystemOneRequest
    parts: Mapping[str, bytes] = {}


class _Stated(msgspec.Struct):
    state: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Named(msgspec.Struct):
    questions: dict[str, msgspec.Raw] = {}
    assets: dict[str, msgspec.Raw] | None = None


class _Options(msgspec.Struct):
    criteria: dict[str, msgspec.Raw]


def read_decision(
    data: bytearray, content_type: str, shape: type[DecisionRequest | SystemOneRequest]
) -> DecisionBody:
    """shape: of the route; a body with a state is System One's at both.

    Raises RequestError, and UnprocessableError for a body of System One.
    """
    if shape is SystemOneRequest or _is_form(content_type) or _has_state(data):
        with as_unprocessable():
            return _read_system_one(data, content_type)
    return DecisionBody(decode_json(data, DecisionRequest))


def _is_form(content_type: str) -> bool:
    return content_type.strip().lower().startswith(MEDIA_TYPE)


def _read_system_one(data: bytearray, content_type: str) -> DecisionBody:
    parts: dict[str, bytes] = {}
    if _is_form(content_type):
        parts = parts_of(data, content_type)
        if _REQUEST not in parts:
            raise RequestError(f"The body has no part {_REQUEST}.", param=_REQUEST)
        data = bytearray(parts.pop(_REQUEST))
    try:
        return DecisionBody(decode_json(data, SystemOneRequest), parts)
    except RequestError as error:
        if _UNKNOWN_NAME in (error.param or ""):
            _check_each(data)
        raise


def _has_state(data: bytearray) -> bool:
    try:
        return struct_of(data, _Stated).state is not msgspec.UNSET
    except RequestError:
        return False  # what is wrong is told by who reads all of it


def _check_each(data: bytearray) -> None:
    """Raise UnprocessableError with the name of what is wrong first in a map, which msgspec does
    not tell; RequestError for what is wrong behind it."""
    given = struct_of(data, _Named)
    _check_values(given.questions, SystemOneQuestion, "questions")
    _check_values(given.assets or {}, DecisionAsset, "assets")


def _check_values(
    values: Mapping[str, msgspec.Raw], shape: Any, within: str, names: tuple[str, ...] = ()
) -> None:
    """names: of what holds these values; none: each is named by itself"""
    for name, raw in values.items():
        place = f"{within}.{name}"
        try:
            msgspec.json.decode(raw, type=shape)
        except msgspec.ValidationError as found:
            if str(found).endswith(_UNKNOWN_OPTION):
                options = msgspec.json.decode(raw, type=_Options).criteria
                _check_values(options, JsonContent | None, f"{place}.criteria", (name,))
            error = invalid_field(found, whole=True, within=place)
            raise UnprocessableError(error, names or (name,)) from None
