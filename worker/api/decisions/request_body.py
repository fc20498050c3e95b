"""A body of either API, whichever route it came to."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec

from worker.api.decisions import openai, systemone
from worker.api.decisions.multipart import MEDIA_TYPE, parts_of
from worker.api.decisions.openai_schemas import DecisionRequest
from worker.api.decisions.place import BodyPlace, check_names
from worker.api.decisions.question import Decision
from worker.api.decisions.systemone import as_unprocessable
from worker.api.decisions.systemone_schemas import (
    DecisionAsset,
    JsonContent,
    SystemOneQuestion,
    SystemOneRequest,
)
from worker.api.intake.body import decode_json, invalid_field, struct_of
from worker.api.intake.media_inputs import MediaInputs
from worker.errors import RequestError

_REQUEST = "request"  # the part that is JSON
_UNKNOWN_NAME = "[...]"  # how msgspec writes a name of a map
_UNKNOWN_OPTION = f"`$.criteria{_UNKNOWN_NAME}`"


class DecisionBody(msgspec.Struct):
    """
    data   its JSON
    parts  of a multipart body, beside its JSON
    """

    asked: DecisionRequest | SystemOneRequest
    data: bytearray
    parts: Mapping[str, bytes] = {}

    def decision(self, media: MediaInputs) -> Decision:
        """What it asks. Raises RequestError that names the field; blocks."""
        with self.errors():
            check_names(self.data)
            if isinstance(self.asked, DecisionRequest):
                return openai.decision_of(self.asked, media)
            return systemone.decision_of(self.asked, self.parts, media)

    def errors(self) -> AbstractContextManager[None]:
        """What is wrong is told as the body's API does."""
        is_openai = isinstance(self.asked, DecisionRequest)
        return _with_plain_param() if is_openai else as_unprocessable()


@contextmanager
def _with_plain_param() -> Generator[None]:
    """msgspec writes no text of a class of its own, such as a BodyPlace."""
    try:
        yield
    except RequestError as error:
        error.param = error.param and str(error.param)
        raise


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
    return DecisionBody(decode_json(data, DecisionRequest), data)


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
        return DecisionBody(decode_json(data, SystemOneRequest), data, parts)
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
    """Raise RequestError with the place of what is wrong first in a map, which msgspec does not
    tell, or of what is wrong behind it."""
    given = struct_of(data, _Named)
    _check_values(given.questions, SystemOneQuestion, BodyPlace("questions"))
    _check_values(given.assets or {}, DecisionAsset, BodyPlace("assets"))


def _check_values(values: Mapping[str, msgspec.Raw], shape: Any, within: BodyPlace) -> None:
    for name, raw in values.items():
        place = within.at(name)
        try:
            msgspec.json.decode(raw, type=shape)
        except msgspec.ValidationError as found:
            if str(found).endswith(_UNKNOWN_OPTION):
                options = msgspec.json.decode(raw, type=_Options).criteria
                _check_values(options, JsonContent | None, place.at("criteria"))
            error = invalid_field(found, whole=True, within=place)
            error.param = place.inside((error.param or "")[len(place) :])
            raise error from None
