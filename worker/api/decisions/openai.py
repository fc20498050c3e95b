"""OpenAI's decisions: a body to a Decision, and readings to an answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from worker.api.decisions.answer import (
    choice_confidence,
    diagnostics_of,
    expected_level,
    likeliest,
    scale_confidence,
)
from worker.api.decisions.content import json_text, picture
from worker.api.decisions.openai_schemas import (
    ChoiceAnswer,
    ChoiceProbability,
    ChoiceQuestion,
    DecisionInputDetails,
    DecisionItem,
    DecisionOutputDetails,
    DecisionReply,
    DecisionRequest,
    DecisionUsage,
    ImagePart,
    InputTextPart,
    ItemPart,
    JsonPart,
    LevelProbability,
    PredicateAnswer,
    PredicateQuestion,
    RefusalPart,
    ScoreAnswer,
    ScoreQuestion,
    SpokenPart,
)
from worker.api.decisions.options import (
    check_count,
    check_questions,
    choice_options,
    scale_options,
    statement_options,
)
from worker.api.decisions.place import BodyPlace
from worker.api.decisions.question import AnswerReading, Decision, TypedQuestion
from worker.api.intake.media_inputs import MediaInputs
from worker.chat.message import Call, Message
from worker.errors import RequestError
from worker.limits import MESSAGES

PARAM = "input"
_LEAST = 2  # options of a question
# Kind of an item -> fields that it must have, and that it may have beside them.
_FIELDS = {
    "message": (("role", "content"), ("phase",)),
    "function_call": (("call_id", "name", "arguments"), ("namespace", "id", "status")),
    "custom_tool_call": (("call_id", "name", "input"), ("namespace", "id", "status")),
    "function_call_output": (("call_id", "output"), ("id", "status")),
    "custom_tool_call_output": (("call_id", "output"), ("id", "status")),
}
# Who speaks -> parts of a message.
_SPEAKS: dict[str, tuple[type[ItemPart], ...]] = {
    "user": (InputTextPart, ImagePart, JsonPart),
    "developer": (InputTextPart,),
    "system": (InputTextPart,),
    "assistant": (SpokenPart, RefusalPart),
}
_RETURNS: tuple[type[ItemPart], ...] = (InputTextPart, ImagePart)
_ASKS: tuple[type[ItemPart], ...] = (InputTextPart, ImagePart, JsonPart)


def decision_of(body: DecisionRequest, media: MediaInputs) -> Decision:
    """Raises RequestError that names the field."""
    check_questions(len(body.questions))
    questions = tuple(
        _question(question, BodyPlace("questions", number), media)
        for number, question in enumerate(body.questions)
    )
    return Decision(_state(body.input, media), questions, PARAM, media)


def _question(
    question: PredicateQuestion | ChoiceQuestion | ScoreQuestion,
    place: BodyPlace,
    media: MediaInputs,
) -> TypedQuestion:
    where = place.at("instructions")
    instructions = _text_of(question.instructions, where, _ASKS, media)
    if not instructions.strip():
        raise RequestError(f"{where} is empty.", param=where)
    match question:
        case PredicateQuestion():
            kind, options = "statement", statement_options()
        case ChoiceQuestion():
            kind = "choice"
            choices = [(each.value, each.description) for each in question.choices]
            options = choice_options(choices, place.at("choices"), _LEAST, is_list=True)
        case ScoreQuestion():
            kind = "scale"
            levels = [(each.label, each.description) for each in question.levels]
            options = scale_options(levels, place.at("levels"), _LEAST)
    return TypedQuestion(kind, place, instructions, options, question.name)


def _state(given: str | list[DecisionItem], media: MediaInputs) -> tuple[Message, ...]:
    if isinstance(given, str):
        messages = [Message(role="user", content=given)]
    else:
        check_count(len(given), PARAM, 1, MESSAGES.most)
        messages = _messages(given, media)
    if not any(message.calls or (message.content or "").strip() for message in messages):
        raise RequestError(f"{PARAM} is empty.", param=PARAM)
    return tuple(messages)


def _messages(given: list[DecisionItem], media: MediaInputs) -> list[Message]:
    """What an assistant says and calls in a row is one message."""
    messages: list[Message] = []
    called: dict[tuple[str, str], str] = {}  # kind and id of a call -> its name
    for number, item in enumerate(given):
        place, kind = f"{PARAM}[{number}]", item.type or "message"
        _check_fields(item, kind, place)
        if kind == "message":
            role = item.role or ""
            said = _text_of(item.content or "", f"{place}.content", _SPEAKS[role], media)
            messages.append(Message(role=role, content=said))
        elif kind.endswith("_output"):
            name = called.get((kind.removesuffix("_output"), item.call_id or ""))
            if name is None:
                where = f"{place}.call_id"
                raise RequestError(f"{where} is of no call before it.", param=where)
            said = _text_of(item.output or "", f"{place}.output", _RETURNS, media)
            messages.append(Message(role="tool", content=said, call_id=item.call_id, name=name))
        else:
            call = _call(item)
            called[kind, call.id] = call.name
            if messages and messages[-1].role == "assistant":
                last = messages.pop()
            else:
                last = Message(role="assistant")
            messages.append(msgspec.structs.replace(last, calls=(*last.calls, call)))
    return messages


def _check_fields(item: DecisionItem, kind: str, place: str) -> None:
    needed, others = _FIELDS[kind]
    for name in item.__struct_fields__:
        where, is_given = f"{place}.{name}", getattr(item, name) is not None
        if name in needed and not is_given:
            raise RequestError(f"{where} is missing.", param=where)
        if is_given and name not in (*needed, *others, "type"):
            raise RequestError(f"{where}: an item of type {kind} has no {name}.", param=where)


def _call(item: DecisionItem) -> Call:
    name = item.name or ""
    if item.namespace:
        name = f"{item.namespace.removesuffix('__')}__{name}"
    arguments = item.arguments
    if arguments is None:  # a custom tool's text
        arguments = msgspec.json.encode({"input": item.input}).decode()
    return Call(item.call_id or "", name, arguments)


def _text_of(
    given: str | Sequence[ItemPart], place: str, may: tuple[type[ItemPart], ...], media: MediaInputs
) -> str:
    """A line for each part."""
    if isinstance(given, str):
        return given
    said: list[str] = []
    for number, part in enumerate(given):
        where = f"{place}[{number}]"
        if not isinstance(part, may):
            kind = part.__struct_config__.tag
            raise RequestError(f"{where} is of type {kind}, which has no place here.", param=where)
        match part:
            case InputTextPart() | SpokenPart():
                said.append(part.text)
            case RefusalPart():
                said.append(part.refusal)
            case JsonPart():
                said.append(json_text(part.data, f"{where}.data"))
            case ImagePart():
                said.append(picture(part.image_url, f"{where}.image_url", media))
    return media.lines(said)


def reply_of(
    decision: Decision, readings: Sequence[AnswerReading], model: str, num_tokens: int
) -> DecisionReply:
    """num_tokens: of the state and all questions"""
    answers = [
        _answer(question, reading)
        for question, reading in zip(decision.questions, readings, strict=True)
    ]
    usage = DecisionUsage(
        num_tokens, DecisionInputDetails(), 0, DecisionOutputDetails(), num_tokens
    )
    return DecisionReply(model, answers, usage)


def _answer(
    question: TypedQuestion, reading: AnswerReading
) -> PredicateAnswer | ChoiceAnswer | ScoreAnswer:
    name, found, told = question.name, reading.probabilities, diagnostics_of(reading)
    pairs = list(zip(question.options, found, strict=True))
    if question.kind == "statement":
        return PredicateAnswer(name, found[0], told)
    if question.kind == "choice":
        choice = question.options[likeliest(question, reading)].value
        each = [ChoiceProbability(option.value, probability) for option, probability in pairs]
        return ChoiceAnswer(name, choice, choice_confidence(found), each, told)
    levels = [
        LevelProbability(level, option.text, probability)
        for level, (option, probability) in enumerate(pairs)
    ]
    return ScoreAnswer(name, expected_level(found), scale_confidence(found), levels, told)
