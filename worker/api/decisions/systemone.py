"""TypeSafe's System One: a body to a Decision, readings to an answer, and what is wrong with it."""

from __future__ import annotations

import base64
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import msgspec

from worker import log
from worker.api.decisions.answer import (
    choice_confidence,
    diagnostics_of,
    expected_level,
    likeliest,
    scale_confidence,
)
from worker.api.decisions.content import picture
from worker.api.decisions.options import (
    check_questions,
    choice_options,
    scale_options,
    statement_options,
)
from worker.api.decisions.place import BodyPlace, steps_of
from worker.api.decisions.question import AnswerOption, AnswerReading, Decision, TypedQuestion
from worker.api.decisions.systemone_schemas import (
    BoxQuestion,
    JsonContent,
    NamedChoiceAnswer,
    NamedChoiceQuestion,
    NoulAnswer,
    NoulQuestion,
    RatingAnswer,
    RatingQuestion,
    SystemOneErrorDetail,
    SystemOneErrorReply,
    SystemOneQuestion,
    SystemOneReply,
    SystemOneRequest,
    SystemOneUsage,
)
from worker.api.intake.media_inputs import MediaInputs
from worker.chat.message import Message
from worker.errors import RequestError
from worker.limits import MEDIA

PARAM = "state"
_LEAST = 1  # options of a question
_ABSENT = ("audio", "videos", "files")


def decision_of(body: SystemOneRequest, parts: Mapping[str, bytes], media: MediaInputs) -> Decision:
    """parts: of a multipart body, beside its JSON. Raises RequestError that names the field."""
    try:
        return _decision(body, parts, media)
    except RecursionError:
        raise RequestError("The body holds too many values in each other.") from None


def _decision(body: SystemOneRequest, parts: Mapping[str, bytes], media: MediaInputs) -> Decision:
    for name in _ABSENT:
        if getattr(body, name):
            raise RequestError(
                f"{name} is not offered here.", param=name, hint="Send images as assets."
            )
    check_questions(len(body.questions))
    texts = _Texts(_marks(body, parts, media))
    questions = tuple(
        _question(question, BodyPlace("questions", name), name, texts)
        for name, question in body.questions.items()
    )
    said = texts.of(body.state)
    if not said.strip():
        raise RequestError("state is empty.", param=PARAM)
    texts.check_placed()
    images = tuple(_images(body, media))
    state = Message(role="user", content=media.lines([*images, said]))
    return Decision((state,), questions, PARAM, media, texts.document(body.state), images)


def _question(
    question: SystemOneQuestion, place: BodyPlace, name: str, texts: _Texts
) -> TypedQuestion:
    if not name.strip():
        raise RequestError("questions has an id without a character.", param=place)
    said, asked = texts.of(question.instructions), texts.value(question.instructions)
    criteria = place.at("criteria")
    match question:
        case NoulQuestion():
            told = question.criteria
            meanings = (None, None) if told is None else (told.true, told.false)
            options = statement_options(*(texts.of(each) for each in meanings))
            if not said.strip() and not any(option.description for option in options):
                raise RequestError(f"{place} needs instructions or criteria.", param=place)
            options = _with_meanings(options, texts, meanings)
            return TypedQuestion("statement", place, said, options, name, asked)
        case NamedChoiceQuestion():
            choices = [(each, texts.of(told)) for each, told in question.criteria.items()]
            options = choice_options(choices, criteria, _LEAST, is_list=False)
            options = _with_meanings(options, texts, question.criteria.values())
            return TypedQuestion("choice", place, said, options, name, asked)
        case RatingQuestion():
            levels = [(texts.of(told), None) for told in question.criteria]
            options = scale_options(levels, criteria, _LEAST)
            options = _with_meanings(options, texts, question.criteria)
            return TypedQuestion("scale", place, said, options, name, asked)
        case BoxQuestion():
            raise RequestError(
                f"{place} is of type box, which this worker does not answer.",
                param=place.at("type"),
            )


def _with_meanings(
    options: tuple[AnswerOption, ...], texts: _Texts, meanings: Iterable[JsonContent | None]
) -> tuple[AnswerOption, ...]:
    """The options with what each means, as it was sent."""
    return tuple(
        msgspec.structs.replace(option, meaning=texts.value(meaning))
        for option, meaning in zip(options, meanings, strict=True)
    )


class _Texts:
    """Contents as texts, with pictures in the place of their references."""

    def __init__(self, marks: Mapping[str, str]) -> None:
        """marks: reference -> mark"""
        self._marks = marks
        self._placed: set[str] = set()
        longest_first = sorted(marks, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if marks else None

    def of(self, content: JsonContent | None) -> str:
        """A text as it is, other values as JSON, none and what is empty as nothing."""
        if not content:
            return ""
        content = self._with_marks(content)
        return content if isinstance(content, str) else msgspec.json.encode(content).decode()

    def value(self, content: JsonContent | None) -> Any:
        """What is no text, as it was sent but for the marks; None: `of` has it."""
        return None if isinstance(content, str) else self._with_marks(content)

    def document(self, content: JsonContent) -> Any:
        """As it was sent, but for the marks."""
        return self._with_marks(content)

    def check_placed(self) -> None:
        """Raise RequestError for a picture that nothing refers to."""
        for reference in self._marks.keys() - self._placed:
            place = BodyPlace("assets", reference)
            raise RequestError(
                f"{place}: its reference stands neither in the state nor in a question.",
                param=place,
            )

    def _with_marks(self, value: Any) -> Any:
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self._pattern.sub(self._mark, value)
        if isinstance(value, list):
            return [self._with_marks(each) for each in cast("list[Any]", value)]
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            return {name: self._with_marks(each) for name, each in fields.items()}
        return value

    def _mark(self, found: re.Match[str]) -> str:
        self._placed.add(found[0])
        return self._marks[found[0]]


def _marks(
    body: SystemOneRequest, parts: Mapping[str, bytes], media: MediaInputs
) -> dict[str, str]:
    """Reference -> mark of its picture."""
    marks: dict[str, str] = {}
    used: set[str] = set()
    for reference, asset in (body.assets or {}).items():
        place = BodyPlace("assets", reference)
        if not reference.strip():
            raise RequestError("assets has a reference without a character.", param="assets")
        if asset.type not in (None, "image"):
            raise RequestError(f"{place}.type must be image.", param=place.at("type"))
        if asset.part is not None:
            if asset.part not in parts or asset.part in used:
                raise RequestError(
                    f"{place}.part must name a part of the body that is no other asset's.",
                    param=place.at("part"),
                )
            used.add(asset.part)
            data = base64.b64encode(parts[asset.part]).decode()
        else:
            data = asset.data_base64 or ""
        if not data:
            raise RequestError(f"{place} holds no bytes.", param=place)
        marks[reference] = picture(f"data:image/png;base64,{data}", place, media)
    if unused := sorted(parts.keys() - used):
        raise RequestError(f"The part {unused[0][:100]} is of no asset.", param="assets")
    return marks


def _images(body: SystemOneRequest, media: MediaInputs) -> Iterable[str]:
    images = body.images or []
    if len(images) > MEDIA.most:
        raise RequestError(f"images must be at most {MEDIA.most}.", param="images")
    for number, image in enumerate(images):
        address = image if isinstance(image, str) else f"data:image/png;base64,{image.base64}"
        yield picture(address, BodyPlace("images", number), media)


def reply_of(
    body: SystemOneRequest,
    decision: Decision,
    readings: Sequence[AnswerReading],
    model: str,
    num_tokens: int,
) -> SystemOneReply:
    """num_tokens: of the state and all questions"""
    answers = {
        name: _answer(asked, question, reading)
        for (name, asked), question, reading in zip(
            body.questions.items(), decision.questions, readings, strict=True
        )
    }
    return SystemOneReply(model, answers, SystemOneUsage(num_tokens, 0))


def _answer(
    asked: SystemOneQuestion, question: TypedQuestion, reading: AnswerReading
) -> NoulAnswer | NamedChoiceAnswer | RatingAnswer:
    found, told = reading.probabilities, diagnostics_of(reading)
    match asked:
        case NamedChoiceQuestion():
            names = list(asked.criteria)
            each = dict(zip(names, found, strict=True))
            choice = names[likeliest(question, reading)]
            return NamedChoiceAnswer(choice, choice_confidence(found), each, told)
        case RatingQuestion():
            legend = {str(level): content for level, content in enumerate(asked.criteria)}
            each = dict(zip(legend, found, strict=True))
            return RatingAnswer(expected_level(found), scale_confidence(found), legend, each, told)
        case _:
            return NoulAnswer(found[0], told)


class UnprocessableError(RequestError, http_status=422):
    """What is wrong with a body, as System One's clients are told it."""

    def __init__(self, error: RequestError) -> None:
        param = error.param or ""
        super().__init__(error.message, param=str(param), hint=error.hint, code=error.code)
        self._steps = steps_of(param)

    @property
    def reply(self) -> SystemOneErrorReply:
        detail = SystemOneErrorDetail(["body", *self._steps], str(self), self.code)
        ids = (msgspec.UNSET if name is None else name for name in log.request_ids())
        return SystemOneErrorReply([detail], *ids)


@contextmanager
def as_unprocessable() -> Generator[None]:
    """Raise UnprocessableError for what is status 400 elsewhere."""
    try:
        yield
    except RequestError as error:
        if error.http_status != RequestError.http_status:
            raise
        raise UnprocessableError(error) from None
