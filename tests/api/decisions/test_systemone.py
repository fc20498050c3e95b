"""System One: bodies to questions, readings to answers, errors."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from tests.api.decisions.asked import (
    DIAGNOSTICS,
    PICTURE,
    PNG,
    as_sent,
    body_of,
    openai_decision,
    reading,
    seeing,
    system_one_decision,
)
from tests.support.cases import for_each
from worker.api.decisions.openai_schemas import DecisionRequest
from worker.api.decisions.question import TypedQuestion
from worker.api.decisions.systemone import UnprocessableError, reply_of
from worker.api.decisions.systemone_schemas import SystemOneRequest
from worker.chat.message import Message

NOTE = "The lift has been stuck since noon."
BROKEN: dict[str, Any] = {"type": "noul", "instructions": "Something is out of order."}
WHO: dict[str, Any] = {"type": "choice", "criteria": {"lifts": "doors, cabins", "nobody": None}}
DEEP = b"[" * 5000 + b"]" * 5000
URGENT: dict[str, Any] = {"type": "score", "criteria": ["can wait", "today", "now"]}


def asked(state: Any = NOTE, **questions: Any) -> dict[str, Any]:
    return {"model": "m", "state": state, "questions": questions or {"broken": BROKEN}}


def test_each_type() -> None:
    """Ids name questions, criteria mean what they describe."""
    noul = {**BROKEN, "criteria": {"true": "It stands.", "false": {"why": "it runs"}}}
    decision = system_one_decision(asked(broken=noul, who=WHO, urgent=URGENT))
    assert decision.state == (Message(role="user", content=NOTE),)
    assert decision.param == "state"
    statement, which, scale = decision.questions
    assert [question.name for question in decision.questions] == ["broken", "who", "urgent"]
    assert [question.place for question in decision.questions] == [
        "questions.broken", "questions.who", "questions.urgent",
    ]  # fmt: skip
    assert [each.description for each in statement.options] == ["It stands.", '{"why":"it runs"}']
    assert [(each.text, each.description) for each in which.options] == [
        ("lifts", "doors, cabins"), ("nobody", None),
    ]  # fmt: skip
    assert [each.text for each in scale.options] == ["can wait", "today", "now"]


def neutral(question: TypedQuestion) -> TypedQuestion:
    return msgspec.structs.replace(question, place="", name=None)


def test_both_apis_ask_the_same() -> None:
    """A noul is a predicate, and a state is an input: so both get the same number."""
    ours = system_one_decision(
        asked(a=BROKEN, b={**WHO, "instructions": "Who?"}, c={**URGENT, "instructions": "How?"})
    )
    theirs = openai_decision(
        {
            "input": NOTE,
            "questions": [
                {"type": "predicate", "instructions": BROKEN["instructions"]},
                {
                    "type": "choice",
                    "instructions": "Who?",
                    "choices": [
                        {"value": "lifts", "description": "doors, cabins"}, {"value": "nobody"},
                    ],
                },
                {
                    "type": "score",
                    "instructions": "How?",
                    "levels": [{"label": "can wait"}, {"label": "today"}, {"label": "now"}],
                },
            ],
        }
    )  # fmt: skip
    assert ours.state == theirs.state
    assert [*map(neutral, ours.questions)] == [*map(neutral, theirs.questions)]


def test_values_are_json() -> None:
    """A state or instructions that are no text are read as JSON in the client's order."""
    state = {"b": [1.5, None, True], "a": "ä"}
    question = {"type": "noul", "instructions": ["x", {"y": 1}]}
    decision = system_one_decision(asked(state, a=question))
    assert decision.state[0].content == '{"b":[1.5,null,true],"a":"ä"}'
    assert decision.questions[0].instructions == '["x",{"y":1}]'


def test_answers() -> None:
    """Fields are System One's in its order; a legend holds what the client sent."""
    body = asked(
        broken=BROKEN,
        who=WHO,
        urgent={"type": "score", "criteria": ["can wait", "today", {"x": 1}]},
    )
    given = body_of(body, SystemOneRequest).asked
    assert isinstance(given, SystemOneRequest)
    readings = [reading(0.97, 0.03), reading(0.75, 0.25), reading(0.125, 0.5, 0.375)]
    sent = as_sent(reply_of(given, system_one_decision(body), readings, "served", 201))
    expected = {
        "model": "served",
        "answers": {
            "broken": {"type": "noul", "noul": 0.97, "diagnostics": DIAGNOSTICS},
            "who": {
                "type": "choice", "choice": "lifts", "confidence": 0.5,
                "probabilities": {"lifts": 0.75, "nobody": 0.25}, "diagnostics": DIAGNOSTICS,
            },
            "urgent": {
                "type": "score", "score": 1.25, "confidence": 0.25,
                "legend": {"0": "can wait", "1": "today", "2": {"x": 1}},
                "probabilities": {"0": 0.125, "1": 0.5, "2": 0.375}, "diagnostics": DIAGNOSTICS,
            },
        },
        "usage": {"input_tokens": 201, "output_tokens": 0},
    }  # fmt: skip
    assert json.dumps(sent) == json.dumps(expected)


def test_one_option_is_certain() -> None:
    """A choice of one and a scale of one level have the confidence 1."""
    body = asked(
        a={"type": "choice", "criteria": {"x": None}}, b={"type": "score", "criteria": ["y"]}
    )
    given = body_of(body, SystemOneRequest).asked
    assert isinstance(given, SystemOneRequest)
    reply = reply_of(given, system_one_decision(body), [reading(1.0), reading(1.0)], "m", 1)
    sent = as_sent(reply)["answers"]
    assert [sent[name]["confidence"] for name in "ab"] == [1, 1]
    assert sent["b"]["score"] == 0


def test_pictures_stand_in_the_place_of_their_references() -> None:
    """In the state, in instructions and in criteria; images stand before the state."""
    media = seeing()
    body: dict[str, Any] = {
        **asked({"photo": "see <p1>, not <p10>"}, a={**BROKEN, "instructions": "<p10> is a cat"}),
        "assets": {
            "<p1>": {"type": "image", "format": "png", "data_base64": PNG},
            "<p10>": {"data_base64": base64.b64encode(base64.b64decode(PNG) + b"0").decode()},
        },
        "images": [PICTURE, {"content_type": "image/png", "base64": PNG}],
    }  # fmt: skip
    decision = system_one_decision(body, media)
    first = media.mark("image", PICTURE)
    second = media.mark("image", body["assets"]["<p10>"]["data_base64"])
    assert first != second
    assert decision.state[0].content == f'{first}{first}{{"photo":"see {first}, not {second}"}}'
    assert decision.questions[0].instructions == f"{second} is a cat"


FORM = "multipart/form-data; boundary=xx"


def form(**parts: bytes) -> bytes:
    """Parts as typesafe-sdk writes them."""
    made = b""
    for name, content in parts.items():
        head = f'--xx\r\nContent-Disposition: form-data; name="{name.replace("_", "-")}"'
        made += f"{head}\r\nContent-Type: x/y\r\n\r\n".encode() + content + b"\r\n"
    return made + b"--xx--\r\n"


def test_a_form_with_pictures() -> None:
    """The part `request` is the body, others are the pictures that its assets name."""
    media = seeing()
    body = {**asked("At <p>"), "assets": {"<p>": {"type": "image", "part": "asset-0"}}}
    data = form(request=json.dumps(body).encode(), asset_0=base64.b64decode(PNG))
    decision = system_one_decision(data, media, FORM)
    assert decision.state[0].content == f"At {media.mark('image', PICTURE)}"


def test_a_state_is_system_ones_at_both_routes() -> None:
    """A body with `state` is read as that API's wherever it comes."""
    half = b'{"state": "\\ud83d", "questions": {"a": {"type": "noul", "instructions": "b"}}}'
    for body in (asked(), half):
        assert isinstance(body_of(body, DecisionRequest).asked, SystemOneRequest)
    with pytest.raises(UnprocessableError):
        body_of({"state": "x"}, DecisionRequest)


def refusal(body: Any, content_type: str = "application/json") -> UnprocessableError:
    with pytest.raises(UnprocessableError) as caught:
        system_one_decision(body, content_type=content_type)
    assert caught.value.http_status == 422
    return caught.value


STATE = b'"state": "x"'


def twice(state: bytes, before: bytes = b"") -> bytes:
    """A body in which a name may stand twice: `before` is the question a.b, and the next one's."""
    asks = b'{"type": "noul", "instructions": "z"}'
    return b'{%s, "questions": {"a.b": %s%s}}' % (state, before, asks)


@for_each(
    ("body", "location"),
    [
        (b"{", []),
        (b"5", []),
        ({"questions": {"a": BROKEN}}, ["state"]),
        (asked(5), ["state"]),
        (asked(""), ["state"]),
        (asked({}), ["state"]),
        ({"state": "x"}, ["questions"]),
        ({"state": "x", "questions": {}}, ["questions"]),
        (asked(**{str(i): BROKEN for i in range(401)}), ["questions"]),
        (asked(**{"a.b[0]": {"type": "noul"}}), ["questions", "a.b[0]"]),
        (asked(a=BROKEN, b={"type": "noul", "criteria": {"true": None}}), ["questions", "b"]),
        (asked(a=BROKEN, b={"type": "box"}), ["questions", "b", "type"]),
        (asked(a={"type": "tree"}), ["questions", "a", "type"]),
        (asked(a={}), ["questions", "a", "type"]),
        (asked(**{"a.b": {"type": "choice"}}), ["questions", "a.b", "criteria"]),
        (
            asked(**{"a.b": {"type": "choice", "criteria": {"x": 5}}}),
            ["questions", "a.b", "criteria", "x"],
        ),
        (asked(a={"type": "choice", "criteria": {}}), ["questions", "a", "criteria"]),
        (
            asked(a={"type": "choice", "criteria": {str(i): None for i in range(256)}}),
            ["questions", "a", "criteria"],
        ),
        (asked(a={"type": "score", "criteria": []}), ["questions", "a", "criteria"]),
        (asked(a={"type": "score", "criteria": [*"abcdefghijk"]}), ["questions", "a", "criteria"]),
        (asked(a={"type": "score", "criteria": ["x", 5]}), ["questions", "a", "criteria", 1]),
        (asked(a={"type": "score", "criteria": ["x", "x"]}), ["questions", "a", "criteria", 1]),
        ({**asked(), "videos": ["data:video/mp4;base64,AAAA"]}, ["videos"]),
        ({**asked(), "images": [PICTURE]}, ["images", 0]),
        ({**asked("<p>"), "assets": {"<p>": {"data_base64": PNG}}}, ["assets", "<p>"]),
        ({**asked("<p>"), "assets": {"<p>": {}}}, ["assets", "<p>"]),
        ({**asked("<p>"), "assets": {"<p>": {"part": "asset-0"}}}, ["assets", "<p>", "part"]),
        ({**asked(), "assets": {" ": {"data_base64": PNG}}}, ["assets"]),
        ({**asked(), "assets": {"<p>": {"type": 5}}}, ["assets", "<p>", "type"]),
        # What is wrong behind a wrong value.
        (b'{"state": "x", "assets": {"p": 5}, "questions": [1]}', ["questions"]),
        (b'{"state": "x", "questions": {"a": 5, "b": ', []),
        (b'{"state": "x", "questions": {"a": 5, "b": ' + DEEP + b"}}", ["questions"]),
        # Half a character, which elsewhere is read as U+FFFD.
        (b'{"state": "\\ud83d", "questions": {"a": 5}}', ["questions", "a"]),
        (b'{"state": "x", "questions": {"a": 5, "b": "\\ud83d"}}', ["questions", "a"]),
        # Names with dots, and without a character.
        (
            asked(**{"a.b": {"type": "choice", "criteria": {"x.y[0]": 5}}}),
            ["questions", "a.b", "criteria", "x.y[0]"],
        ),
        (
            asked(**{"a": {"type": "choice", "criteria": {"x": 5}}, "a.criteria": BROKEN}),
            ["questions", "a", "criteria", "x"],
        ),
        (asked(**{" ": BROKEN}), ["questions", " "]),
        (
            asked(a={"type": "choice", "criteria": {"x": None, "": None}}),
            ["questions", "a", "criteria", ""],
        ),
        (asked(a={"type": "score", "criteria": ["x", {}]}), ["questions", "a", "criteria", 1]),
        (asked(a={"type": "noul", "instructions": [], "criteria": {}}), ["questions", "a"]),
        # One of two would be lost.
        (b'{"state": "x", "state": "y", "questions": {"a": 5}}', ["questions", "a"]),
        (twice(b'"state": "x", "state": "y"'), ["state"]),
        (twice(b'"state": {"k.l": [{"m": 1, "m": 2}]}'), ["state", "k.l", 0, "m"]),
        (twice(STATE, b'{"type": "noul"}, "a.b": '), ["questions", "a.b"]),
        (
            twice(STATE, b'{"type": "choice", "criteria": {"y.z": "1", "y.z": null}}, "b": '),
            ["questions", "a.b", "criteria", "y.z"],
        ),
        (twice(b'"state": ' + DEEP), []),
        (asked(**{"[...]": {"type": "[...]", "criteria": [5]}}), ["questions", "[...]", "type"]),
    ],
)  # fmt: skip
def test_what_is_wrong(body: Any, location: list[str | int]) -> None:
    """Status 422 with the place as a path, whatever the client calls its questions."""
    (detail,) = as_sent(refusal(body).reply)["detail"]
    assert detail["loc"][: 1 + len(location)] == ["body", *location]
    assert detail["msg"]
    assert detail["type"] == "invalid_request"


@for_each(
    ("body", "words"),
    [
        (form(other=b"{}"), "no part request"),
        (form(request=json.dumps(asked()).encode(), asset_0=b"x"), "asset-0 is of no asset"),
        (b"--xx\r\nContent-Disposition: form-data\r\n\r\nx\r\n--xx--", "no name"),
        (b"--xx\r\nContent-Disposition: form-data; name=\"request\"\r\n\r\n{}", "does not end"),
        (b"nothing", "no part"),
        (b"", "no part"),
        (form(request=b"{}", **{f"p{i}": b"" for i in range(70)}), "more than 65 parts"),
    ],
)  # fmt: skip
def test_wrong_forms(body: bytes, words: str) -> None:
    """They say what is missing."""
    assert words in refusal(body, FORM).message


def test_a_picture_that_nothing_refers_to() -> None:
    """It is refused: the answer would not be about it."""
    body = {**asked("nothing"), "assets": {"<p>": {"data_base64": PNG}}}
    with pytest.raises(UnprocessableError, match="its reference stands neither"):
        system_one_decision(body, seeing())
