"""OpenAI's decisions: bodies to questions, readings to answers."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from tests.api.decisions.asked import (
    DIAGNOSTICS,
    PICTURE,
    as_sent,
    openai_decision,
    reading,
    seeing,
)
from tests.support.cases import for_each
from worker.api.decisions.openai import reply_of
from worker.api.decisions.question import AnswerOption
from worker.chat.message import Call, Message
from worker.errors import RequestError

NOTE = "The lift has been stuck since noon."
TRUE: dict[str, Any] = {"type": "predicate", "instructions": "Something is out of order."}
WHO: dict[str, Any] = {
    "type": "choice",
    "instructions": "Who repairs it?",
    "choices": [{"value": "lifts", "description": "doors, cabins"}, {"value": False}],
}
URGENT: dict[str, Any] = {
    "type": "score",
    "instructions": "How urgent?",
    "levels": [{"label": "can wait"}, {"label": "today"}, {"label": "now", "description": "!"}],
}


def asked(*questions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": NOTE, "questions": list(questions) or [TRUE], **fields}


def choice(*values: str | bool) -> dict[str, Any]:
    return {**WHO, "choices": [{"value": value} for value in values]}


def levels(*labels: str) -> dict[str, Any]:
    return {**URGENT, "levels": [{"label": label} for label in labels]}


def refusal(body: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        openai_decision(body)
    assert caught.value.http_status == 400
    return caught.value


def test_each_type() -> None:
    """Options stand as the client lists them, a statement's are true and false."""
    decision = openai_decision(asked({**TRUE, "name": "broken"}, WHO, URGENT))
    assert decision.state == (Message(role="user", content=NOTE),)
    statement, which, scale = decision.questions
    assert (statement.kind, statement.name, statement.place) == (
        "statement", "broken", "questions[0]",
    )  # fmt: skip
    assert [option.value for option in statement.options] == [True, False]
    assert which.options == (
        AnswerOption("lifts", "lifts", "doors, cabins"),
        AnswerOption(False, "false"),
    )
    assert which.instructions == "Who repairs it?"
    assert [option.text for option in scale.options] == ["can wait", "today", "now"]
    assert scale.options[2].description == "!"


def test_a_boolean_beside_its_word() -> None:
    """They are two options, and the model reads two texts."""
    (question,) = openai_decision(asked(choice(True, "true", "no"))).questions
    assert [option.value for option in question.options] == [True, "true", "no"]
    assert [option.text for option in question.options] == ["true", '"true"', "no"]


def test_answers() -> None:
    """Fields are OpenAI's in its order, numbers whole, the name always there."""
    decision = openai_decision(asked({**TRUE, "name": "broken"}, WHO, URGENT))
    readings = [reading(0.97, 0.03), reading(0.9, 0.1), reading(0.1, 0.5, 0.4)]
    sent = as_sent(reply_of(decision, readings, "served", 214))
    expected = {
        "model": "served",
        "answers": [
            {
                "type": "predicate", "name": "broken", "probability": 0.97,
                "diagnostics": DIAGNOSTICS,
            },
            {
                "type": "choice", "name": None, "choice": "lifts", "confidence": 0.8,
                "probabilities": [
                    {"value": "lifts", "probability": 0.9}, {"value": False, "probability": 0.1},
                ],
                "diagnostics": DIAGNOSTICS,
            },
            {
                "type": "score", "name": None, "score": 1.3, "confidence": 0.25,
                "probabilities": [
                    {"value": 0, "label": "can wait", "probability": 0.1},
                    {"value": 1, "label": "today", "probability": 0.5},
                    {"value": 2, "label": "now", "probability": 0.4},
                ],
                "diagnostics": DIAGNOSTICS,
            },
        ],
        "usage": {
            "input_tokens": 214,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 214,
        },
    }  # fmt: skip
    assert json.dumps(rounded(sent)) == json.dumps(expected)


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 12)
    if isinstance(value, list):
        return [rounded(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: rounded(each) for name, each in fields.items()}
    return value


def test_the_likeliest_of_equals() -> None:
    """It is the same however options are listed."""
    for values in (("a", "b", "c"), ("c", "b", "a")):
        decision = openai_decision(asked(choice(*values)))
        sent = as_sent(reply_of(decision, [reading(1 / 3, 1 / 3, 1 / 3)], "m", 1))
        assert sent["answers"][0]["choice"] == "a"
        assert sent["answers"][0]["confidence"] == 0


def test_a_temperature_is_told() -> None:
    """Calibration is null only where there is none."""
    decision = openai_decision(asked())
    sent = as_sent(reply_of(decision, [reading(0.5, 0.5, temperature=1.5)], "m", 1))
    assert sent["answers"][0]["diagnostics"]["calibration"] == {"temperature": 1.5}


def test_items() -> None:
    """Messages, calls and what they returned become turns of a chat."""
    items = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Be strict."}]},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "Look:",
             "prompt_cache_breakpoint": {"mode": "explicit"}},
            {"type": "input_json", "data": {"floor": 3, "open": None}},
        ]},
        {"role": "assistant", "phase": "commentary", "content": [
            {"type": "output_text", "text": "I ask."}, {"type": "refusal", "refusal": "No."},
        ]},
        {"type": "function_call", "call_id": "a", "name": "find", "arguments": '{"q":1}',
         "namespace": "crm", "id": None, "status": "completed"},
        {"type": "custom_tool_call", "call_id": "b", "name": "sh", "input": "ls"},
        {"type": "function_call_output", "call_id": "a", "output": "none"},
        {"type": "custom_tool_call_output", "call_id": "b",
         "output": [{"type": "input_text", "text": "x"}, {"type": "input_text", "text": "y"}]},
    ]  # fmt: skip
    assert openai_decision(asked(input=items)).state == (
        Message(role="developer", content="Be strict."),
        Message(role="user", content='Look:\n{"floor":3,"open":null}'),
        Message(
            role="assistant",
            content="I ask.\nNo.",
            calls=(Call("a", "crm__find", '{"q":1}'), Call("b", "sh", '{"input":"ls"}')),
        ),
        Message(role="tool", content="none", call_id="a", name="crm__find"),
        Message(role="tool", content="x\ny", call_id="b", name="sh"),
    )


def test_pictures() -> None:
    """A model that sees gets them where they stand, in questions too."""
    media = seeing()
    shown = {"type": "input_image", "image_url": PICTURE, "detail": "low"}
    question = {**TRUE, "instructions": [{"type": "input_text", "text": "Same as"}, shown]}
    items = [{"role": "user", "content": [shown, {"type": "input_text", "text": "What?"}]}]
    decision = openai_decision(asked(question, input=items), media)
    assert decision.media is media
    mark = media.mark("image", PICTURE)
    assert mark is not None
    assert decision.state[0].content == f"{mark}What?"
    assert decision.questions[0].instructions == f"Same as{mark}"


def test_fields_without_effect() -> None:
    """They are taken, whatever they say."""
    decision = openai_decision(
        asked(
            prompt_cache_key="k",
            prompt_cache_options={"mode": "explicit", "ttl": "30m"},
            safety_identifier="s",
        )
    )
    assert decision.questions == openai_decision(asked()).questions


IMAGE = [{"role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]}]


def inner(depth: int) -> Any:
    """So many objects in each other."""
    return {"a": inner(depth - 1)} if depth > 1 else {}


def with_json(data: Any) -> dict[str, Any]:
    return asked(input=[{"role": "user", "content": [{"type": "input_json", "data": data}]}])


@for_each(
    ("body", "param"),
    [
        (asked(input=""), "input"),
        (asked(input=" \n"), "input"),
        (asked(input=[]), "input"),
        (asked(input=5), "input"),
        (asked(input=IMAGE), "input[0].content[0].image_url"),
        (asked(temperature=0), "temperature"),
        (asked({**TRUE, "seed": 1}), "questions[0].seed"),
        (asked(TRUE, {**TRUE, "type": "box"}), "questions[1].type"),
        (asked({"instructions": "x"}), "questions[0].type"),
        (asked({"type": "predicate"}), "questions[0].instructions"),
        (asked({**TRUE, "instructions": " "}), "questions[0].instructions"),
        (
            asked({**TRUE, "instructions": [{"type": "input_text"}]}),
            "questions[0].instructions[0].text",
        ),
        ({**asked(), "questions": []}, "questions"),
        (asked(*[TRUE] * 401), "questions"),
        (asked(choice("a")), "questions[0].choices"),
        (asked(choice(*map(str, range(256)))), "questions[0].choices"),
        (asked(choice("a", "b", "a")), "questions[0].choices[2]"),
        (asked(choice(True, False, True)), "questions[0].choices[2]"),
        (asked(choice("a", "")), "questions[0].choices[1]"),
        (asked({**WHO, "choices": [{"value": 1}, {"value": 2}]}), "questions[0].choices[0].value"),
        (asked({**WHO, "levels": []}), "questions[0].levels"),
        (asked(levels("a")), "questions[0].levels"),
        (asked(levels(*"abcdefghijk")), "questions[0].levels"),
        (asked(TRUE, levels("a", "b", "a")), "questions[1].levels[2]"),
        (asked(input=[{"role": "tool", "content": "x"}]), "input[0].role"),
        (asked(input=[{"role": "user"}]), "input[0].content"),
        (asked(input=[{"role": "user", "content": "x", "call_id": "a"}]), "input[0].call_id"),
        (asked(input=[{"type": "reasoning"}]), "input[0].type"),
        (
            asked(input=[{"role": "system", "content": [{"type": "output_text", "text": "x"}]}]),
            "input[0].content[0]",
        ),
        (
            asked(input=[{"role": "user", "content": "x"}, {
                "type": "function_call_output", "call_id": "a", "output": "x"}]),
            "input[1].call_id",
        ),
        (
            asked(input=[
                {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "x"},
                {"type": "function_call_output", "call_id": "a", "output": "x"}]),
            "input[1].call_id",
        ),
        (
            b'{"input": "x", "questions": [{"type": "predicate", "instructions": "a"},'
            b'{"type": "predicate", "instructions": "a", "instructions": "b"}]}',
            "questions[1].instructions",
        ),
        (
            b'{"questions": [{"type": "predicate", "instructions": "a"}], "input": ['
            b'{"role": "user", "content": [{"type": "input_json",'
            b'"data": {"a": {"b.c": 1, "b.c": 2}}}]}]}',
            "input[0].content[0].data.a.b.c",
        ),
        (with_json([1]), "input[0].content[0].data[0]"),
        (with_json(inner(33)), "input[0].content[0].data"),
        (with_json({"a": list(range(10_000))}), "input[0].content[0].data"),
        (with_json({"a": "x" * 2**18}), "input[0].content[0].data"),
    ],
)  # fmt: skip
def test_what_is_wrong(body: Any, param: str) -> None:
    """The error names its place in the body."""
    assert refusal(body).param == param


def test_most() -> None:
    """What is just within the limits is asked."""
    bodies = (
        asked(*[TRUE] * 400),
        asked(choice(*map(str, range(255))), levels("a", "b"), levels(*"abcdefghij")),
        with_json(inner(32)),
        with_json({"a": list(range(9_998))}),
    )
    assert [len(openai_decision(body).questions) for body in bodies] == [400, 3, 1, 1]
