"""A body of either API, whichever route it came to."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from worker.api.decisions.multipart import MEDIA_TYPE, parts_of
from worker.api.decisions.openai_schemas import DecisionRequest
from worker.api.decisions.systemone import UnprocessableError, as_unprocessable
from worker.api.decisions.systemone_schemas import SystemOneQuestion, SystemOneRequest
from worker.api.intake.body import decode_json, invalid_field
from worker.errors import RequestError

_REQUEST = "request"  # the part that is JSON
_UNKNOWN_NAME = "[...]"  # how msgspec writes a name of a map


class DecisionBody(msgspec.Struct):
    """parts: of a multipart body, beside its JSON"""

    asked: DecisionRequest | SystemOneRequest
    parts: Mapping[str, bytes] = {}


class _Stated(msgspec.Struct):
    state: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Asked(msgspec.Struct):
    questions: dict[str, msgspec.Raw] = {}


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
        return msgspec.json.decode(data, type=_Stated).state is not msgspec.UNSET
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False  # what is wrong is told by who reads all of it


def _check_each(data: bytearray) -> None:
    """Raise UnprocessableError with the id of the first wrong question, which msgspec does not
    tell."""
    for name, raw in msgspec.json.decode(data, type=_Asked).questions.items():
        try:
            msgspec.json.decode(raw, type=SystemOneQuestion)
        except msgspec.ValidationError as found:
            error = invalid_field(found, whole=True, within=f"questions.{name}")
            raise UnprocessableError(error, (name,)) from None
