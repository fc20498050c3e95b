"""POST /v1/systemone as TypeSafe's clients send it, and what they get. Null means not given."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from worker.api.decisions.answer import Diagnostics
from worker.api.intake.bounds import items
from worker.limits import LEVELS, MEDIA, OPTIONS, QUESTIONS

JsonContent = str | dict[str, Any] | list[Any]


def _entries(most: int) -> Meta:
    """An object with so many fields, at least one."""
    return Meta(extra_json_schema={"minProperties": 1, "maxProperties": most})


class NoulCriteria(msgspec.Struct, kw_only=True):
    """When each of them is right."""

    true: JsonContent | None = None
    false: JsonContent | None = None


class NoulQuestion(msgspec.Struct, tag_field="type", tag="noul", kw_only=True):
    """Whether something is true; instructions or criteria say what."""

    instructions: JsonContent | None = None
    criteria: NoulCriteria | None = None


class NamedChoiceQuestion(msgspec.Struct, tag_field="type", tag="choice", kw_only=True):
    """Which name fits. criteria: name -> what it means, or null"""

    criteria: Annotated[dict[str, JsonContent | None], _entries(OPTIONS.most)]
    instructions: JsonContent | None = None


class RatingQuestion(msgspec.Struct, tag_field="type", tag="score", kw_only=True):
    """Which level fits. criteria: descriptions of the levels, the lowest first"""

    criteria: Annotated[list[JsonContent], items(LEVELS.most, least=1)]
    instructions: JsonContent | None = None


class BoxQuestion(msgspec.Struct, tag_field="type", tag="box", kw_only=True):
    """Refused: no model here says where something is in a picture."""

    instructions: JsonContent | None = None


SystemOneQuestion = NoulQuestion | NamedChoiceQuestion | RatingQuestion | BoxQuestion


class DecisionAsset(msgspec.Struct, kw_only=True):
    """A picture.

    data_base64  its bytes
    part         in a multipart body: the name of the part that is the picture
    format       changes nothing: the bytes tell it
    """

    type: str | None = None
    format: str | None = None
    data_base64: str | None = None
    part: str | None = None


class EncodedImage(msgspec.Struct, kw_only=True):
    """A picture's bytes in base64."""

    base64: str
    content_type: str | None = None


class SystemOneRequest(msgspec.Struct, kw_only=True):
    """POST /v1/systemone: JSON, or multipart/form-data whose part `request` is this JSON.

    state      what the questions are about; what is no text is read as JSON
    questions  id -> question; answers have the same ids in the same order
    model      anything: one worker serves one model, or the name of an adapter
    assets     reference -> picture; it stands in the place of the reference, in any text
    images     pictures before the state: data URLs, or objects
    audio, videos, files
               refused: the answer would be about something that the model did not get
    """

    shows_media: ClassVar[bool] = True
    names_places: ClassVar[bool] = True

    state: JsonContent
    questions: Annotated[dict[str, SystemOneQuestion], _entries(QUESTIONS.most)]
    model: str | None = None
    assets: dict[str, DecisionAsset] | None = None
    images: Annotated[list[str | EncodedImage] | None, items(MEDIA.most)] = None
    audio: list[Any] | None = None
    videos: list[Any] | None = None
    files: list[Any] | None = None


class NoulAnswer(msgspec.Struct, tag_field="type", tag="noul"):
    """noul: the probability that it is true"""

    noul: float
    diagnostics: Diagnostics


class NamedChoiceAnswer(msgspec.Struct, tag_field="type", tag="choice"):
    """choice: the likeliest name. confidence: 0 if all are alike, 1 if it is certain"""

    choice: str
    confidence: float
    probabilities: dict[str, float]
    diagnostics: Diagnostics


class RatingAnswer(msgspec.Struct, tag_field="type", tag="score"):
    """score: the mean of the levels' places. legend: the levels by their places"""

    score: float
    confidence: float
    legend: dict[str, JsonContent]
    probabilities: dict[str, float]
    diagnostics: Diagnostics


class SystemOneUsage(msgspec.Struct):
    """Tokens of the state, once, and of all questions; nothing is written."""

    input_tokens: int
    output_tokens: int


class SystemOneReply(msgspec.Struct):
    """Answers by the ids of the questions."""

    model: str
    answers: dict[str, NoulAnswer | NamedChoiceAnswer | RatingAnswer]
    usage: SystemOneUsage


class SystemOneErrorDetail(msgspec.Struct):
    """loc: where it is: `body`, then fields and places. type: the error's code"""

    loc: list[str | int]
    msg: str
    type: str


class SystemOneErrorReply(msgspec.Struct):
    """What is wrong with the body, status 422."""

    detail: list[SystemOneErrorDetail]
    request_id: str | msgspec.UnsetType = msgspec.UNSET
    correlation_id: str | msgspec.UnsetType = msgspec.UNSET
