"""Decision models that bring their own form of questions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.api.decisions.reading_model import TRUTH, ReadingModel, asks
from tests.support.models.ggufs import text as key_of
from tests.support.models.parsing import parsed
from tests.support.programs.processes import serving
from worker.api.decisions.native import FAMILIES, native_form, native_plan
from worker.api.decisions.question import AnswerOption, AnswerReading, Decision, TypedQuestion
from worker.api.decisions.reading import Plan
from worker.budget import UNBOUNDED
from worker.chat.message import Message
from worker.chat.template import TEMPLATES, ChatTemplate
from worker.demo import MODEL_PATH
from worker.errors import ContextLengthError, RequestError
from worker.model.decider import DECISION_TEMPLATE, LABEL_READERS

CHAT, CHATML = "/v1/chat/completions", TEMPLATES["chatml"]
TEMPLATE = (
    "{{ state if state is string else state | tojson }}\n"
    "{{ type }} {{ id }}: {{ instructions if instructions is string else instructions | tojson }}\n"
    "{% for o in options %}{{ o.label | default('-') }} {{ o.key }}={{ o.description | tojson }} "
    "{% endfor %}{% for q in questions | default([]) %}[{{ q.id }}]{% endfor %}:"
)
STATE = {"b": "The dog barks.", "a": [1, None]}


def plan_with(
    model: ReadingModel,
    family: str,
    *questions: TypedQuestion,
    template: str = TEMPLATE,
    document: Any = STATE,
    **temperatures: float,
) -> Plan:
    config = model.facts.config
    assert config.tokenizer is not None
    tokenizer = msgspec.structs.replace(
        config.tokenizer, chat_templates={DECISION_TEMPLATE: template}
    )
    config = msgspec.structs.replace(
        config,
        tokenizer=tokenizer,
        decision_type=family,
        decision_temperatures={name.replace("_", ".", 1): t for name, t in temperatures.items()},
    )
    facts = msgspec.structs.replace(model.facts, config=config)
    form = native_form(facts)
    assert form is not None
    state = (Message(role="user", content="not shown"),)
    decision = Decision(state, questions, "state", document=document)
    return native_plan(decision, facts, form, UNBOUNDED)


def texts_of(model: ReadingModel, plan: Plan) -> list[str]:
    """The prompts that a plan's suffixes end; control tokens have no text."""
    state = plan.request.prompt.tokens
    pieces = model.facts.vocab.pieces
    return [
        b"".join(pieces[token] for token in state + suffix.tokens).decode()
        for suffix in plan.request.suffixes
    ]


def read(model: ReadingModel, plan: Plan) -> list[AnswerReading]:
    return plan.readings(model.scored(plan).scores)


CHOICE = asks(
    "choice", "Who?", AnswerOption("dog", "dog", None), AnswerOption("cat", "cat", "meows")
)


def test_families_are_those_that_are_served() -> None:
    """Each family that reads labels has its form, and no other has one."""
    assert set(FAMILIES) == LABEL_READERS


@pytest.mark.parametrize(
    ("family", "wanted"),
    [
        ("openjev", ["- cat=\"meows\" - dog=null :"]),
        ("lev", ["A cat=\"meows\" B dog=null :", "A dog=null B cat=\"meows\" :"]),
        ("nimble", ["A cat=\"meows\" B dog=null [question_1]:"]),
        ("pplx-decider", ["A cat=\"meows\" B dog=null :"]),
        ("lfm2-d1", ["A cat=\"meows\" B dog=null :"]),
    ],
)  # fmt: skip
def test_a_choice_is_written_by_the_files_template(
    reading_model: ReadingModel, family: str, wanted: list[str]
) -> None:
    """The template gets the state and descriptions as they were sent, and each option's label."""
    plan = plan_with(reading_model, family, CHOICE)
    state = '{"a": [1, null], "b": "The dog barks."}' if family == "lev" else (
        '{"b": "The dog barks.", "a": [1, null]}'
    )  # fmt: skip
    head = f"{state}\nchoice question_1: Who?\n"
    assert texts_of(reading_model, plan) == [head + each for each in wanted]
    (found,) = read(reading_model, plan)
    assert math.fsum(found.probabilities) == pytest.approx(1, abs=1e-12)
    assert (found.prompt_version, found.orders) == (family, len(wanted))


def test_two_orders_are_averaged_as_probabilities(reading_model: ReadingModel) -> None:
    """lev's choice is the mean of both orders' probabilities, at the file's temperature."""
    plan = plan_with(reading_model, "lev", CHOICE, choice_small=2.0)
    scores = reading_model.scored(plan).scores
    each: list[float] = []
    for score, cat in zip(scores, (0, 1), strict=True):
        powers = [math.exp(value / 2) for value in score.candidates]
        each.append(powers[cat] / sum(powers))
    (found,) = plan.readings(scores)
    assert found.temperature == 2.0
    assert found.probabilities[1] == pytest.approx(sum(each) / 2, abs=1e-12)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_statement_is_a_noul(reading_model: ReadingModel, family: str) -> None:
    """Its options are true and false in the family's order; lev's is the mean of nine ratings."""
    plan = plan_with(reading_model, family, asks("statement", "It barks.", *TRUTH))
    (text,) = texts_of(reading_model, plan)
    keys = [word.partition("=")[0] for word in text.split() if "=" in word]
    first = ["true", "false"] if FAMILIES[family].true_first else ["false", "true"]
    assert keys == first
    scores = reading_model.scored(plan).scores
    (found,) = plan.readings(scores)
    values = [math.exp(each) for each in scores[0].candidates]
    if family == "lev":
        assert len(values) == 9
        wanted = sum(place * value for place, value in enumerate(values)) / (8 * sum(values))
    elif family == "lfm2-d1":
        (view,) = plan.asked[0].views
        yes, no = (max(values[place] for place in places) for places in view.labels)
        wanted = yes / (yes + no)
    else:
        wanted = values[keys.index("true")] / sum(values)
    assert found.probabilities == pytest.approx((wanted, 1 - wanted), abs=1e-12)


def test_levels_are_numbered(reading_model: ReadingModel) -> None:
    """A level's key is its place, its meaning the client's words; lfm2-d1 answers with digits."""
    levels = AnswerOption("low", "low", "bad"), AnswerOption("high", "high")
    plan = plan_with(reading_model, "lfm2-d1", asks("scale", "How?", *levels))
    (text,) = texts_of(reading_model, plan)
    assert text.endswith('0 0="low: bad" 1 1="high" :')
    vocab = reading_model.facts.vocab
    tokens = vocab.tokenize("0", add_special=False, parse_special=False, param="")
    assert plan.request.suffixes[0].candidates[:1] == tuple(tokens)


def test_control_tokens_are_text(reading_model: ReadingModel) -> None:
    """What a client's state spells is no control token; the template's own are."""
    end = sorted(reading_model.facts.vocab.controls)[0]
    plan = plan_with(
        reading_model, "openjev", CHOICE, template=end + TEMPLATE, document={end: [end]}
    )
    (special,) = reading_model.facts.vocab.tokenize(
        end, add_special=False, parse_special=True, param=""
    )
    tokens = plan.request.prompt.tokens + plan.request.suffixes[0].tokens
    assert tokens.count(special) == 1
    (text,) = texts_of(reading_model, plan)
    assert text.startswith(f'{{"{end}": ["{end}"]}}')


def test_the_state_is_computed_once(reading_model: ReadingModel) -> None:
    """What all questions share is read once, also beside other questions later."""
    first = plan_with(reading_model, "pplx-decider", CHOICE)
    both = plan_with(reading_model, "pplx-decider", CHOICE, asks("statement", "It.", *TRUTH))
    state = both.request.prompt.tokens
    assert first.request.prompt.tokens[: len(state)] == state
    said = b"".join(reading_model.facts.vocab.pieces[token] for token in state).decode()
    assert said.startswith('{"b": "The dog barks."')


def test_too_many_options_are_refused(reading_model: ReadingModel) -> None:
    """More options than the family has labels: the question is named."""
    many = asks("choice", "Which?", *(f"option {number}" for number in range(53)))
    with pytest.raises(RequestError, match=r"questions\[0\] needs 53 labels"):
        plan_with(reading_model, "openjev", many)


def test_a_state_that_is_too_long_is_written_once(
    reading_model: ReadingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many questions about a state that the context cannot hold cost no more than one, and the
    refusal names the state."""
    rendered: list[str] = []
    render = ChatTemplate.render

    def counted(self: ChatTemplate, *given: Any, **named: Any) -> str:
        rendered.append(named["id"])
        return render(self, *given, **named)

    monkeypatch.setattr(ChatTemplate, "render", counted)
    many = [asks("statement", f"It {number}.", *TRUTH) for number in range(100)]
    with pytest.raises(ContextLengthError) as caught:
        plan_with(reading_model, "openjev", *many, document="word " * 10_000)
    assert caught.value.param == "state"
    assert len(rendered) == 2


def test_a_template_that_fails_is_told(reading_model: ReadingModel) -> None:
    """Its reason, with the question's place."""
    with pytest.raises(RequestError, match=r"systemone template .*: never") as error:
        plan_with(reading_model, "lev", CHOICE, template="{{ raise_exception('never') }}")
    assert error.value.param == "questions[0]"


def test_a_template_that_is_none_is_told(reading_model: ReadingModel) -> None:
    """The error names this template and not the chat's, and what helps."""
    with pytest.raises(RequestError, match=r"systemone template cannot be read") as error:
        plan_with(reading_model, "lev", CHOICE, template="{% for")
    assert (error.value.param, bool(error.value.hint)) == ("model", True)


def test_other_models_are_asked_as_ever(reading_model: ReadingModel) -> None:
    """A model that is no decision model, or whose file has no such template, has no form."""
    facts = reading_model.facts
    assert native_form(facts) is None
    config = msgspec.structs.replace(facts.config, decision_type="lev")
    assert native_form(msgspec.structs.replace(facts, config=config)) is None


def test_a_served_file_is_asked_in_its_own_form(tmp_path: Path) -> None:
    """A worker over such a file: both routes answer alike, by the template, and say whose form and
    which temperature it was."""
    gguf = parsed(MODEL_PATH.read_bytes())
    gguf.keys["llama.decision.type"] = key_of("lev")
    gguf.keys["llama.decision.temperature.noul"] = key_of("2.0")
    gguf.keys[f"tokenizer.chat_template.{DECISION_TEMPLATE}"] = key_of(TEMPLATE)
    path = tmp_path / "lev.gguf"
    path.write_bytes(gguf.encode())
    with serving(path, "-c", "2048", "-np", "2") as server:
        ours = server.post(
            {
                "state": "A dog barks.",
                "questions": {"q": {"type": "noul", "instructions": "It barks."}},
            },
            "/v1/systemone",
        ).json()["answers"]["q"]
        theirs = server.post(
            {
                "model": "m",
                "input": "A dog barks.",
                "questions": [{"type": "predicate", "name": "q", "instructions": "It barks."}],
            },
            "/v1/decisions",
        )
        assert theirs.json()["answers"][0]["probability"] == ours["noul"]
        assert ours["diagnostics"]["prompt_version"] == "lev"
        assert ours["diagnostics"]["calibration"] == {"temperature": 2.0}
        props = httpx.get(f"{server.url}/props", timeout=60).json()
        assert props["decisions"]["prompt_version"] == "lev"


QUESTIONS = {"q": {"type": "noul", "instructions": "It barks."}}


@pytest.mark.parametrize("name", ["chat", "systemone"])
def test_a_served_file_with_a_broken_template(tmp_path: Path, name: str) -> None:
    """Each API refuses it in its own form and status, chats with 400 and System One with 422, and
    says which template it is; the other template does its work."""
    gguf = parsed(MODEL_PATH.read_bytes())
    gguf.keys["tokenizer.chat_template"] = key_of("{% for %}" if name == "chat" else CHATML)
    if name == DECISION_TEMPLATE:
        gguf.keys["llama.decision.type"] = key_of("lev")
        gguf.keys[f"tokenizer.chat_template.{DECISION_TEMPLATE}"] = key_of("{% for %}")
    path = tmp_path / "broken.gguf"
    path.write_bytes(gguf.encode())
    with serving(path, "-c", "2048", "-np", "2") as server:
        theirs = server.post({"state": "A dog barks.", "questions": QUESTIONS}, "/v1/systemone")
        asked = {"input": "A dog barks.", "questions": [{"type": "predicate", "instructions": "?"}]}
        ours = server.post(asked, "/v1/decisions")
        chat = server.post({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}, CHAT)
    assert (theirs.status_code, ours.status_code) == (422, 400)
    (detail,), error = theirs.json()["detail"], ours.json()["error"]
    assert detail["loc"] == ["body", "model"]
    assert f"The model's {name} template cannot be read: " in detail["msg"]
    assert (error["message"], error["param"]) == (detail["msg"], "model")
    assert chat.status_code == (400 if name == "chat" else 200)
