"""Question sets: what ours hold, and what a file must be."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from worker.bench.decisions.questions import GENERAL, QuestionSet, question_set, read_questions
from worker.errors import UsageError

STATE = {
    "state": {"note": "It rains."},
    "questions": {
        "wet": {"type": "noul", "instructions": "Is it wet?"},
        "what": {"type": "choice", "criteria": {"rain": None, "snow": "white"}},
        "much": {"type": "score", "criteria": ["a little", "much", "very much"]},
    },
    "answers": {"wet": False, "what": "snow", "much": 2},
}


def asked(found: QuestionSet) -> list[tuple[str, int, int]]:
    each = [question for state in found.states for question in state.asked.values()]
    return [(question.kind, question.num_options, question.right) for question in each]


def test_the_general_set_is_large_and_balanced() -> None:
    """At least 300 questions of three types; true as often as false, right options everywhere."""
    found = asked(question_set("general"))
    assert len(found) >= 300
    kinds = Counter(kind for kind, _, _ in found)
    assert min(kinds.values()) >= 80
    assert set(kinds) == {"statement", "choice", "scale"}
    true = sum(right == 0 for kind, _, right in found if kind == "statement")
    assert abs(2 * true / kinds["statement"] - 1) < 0.02
    for options in (3, 4, 5):
        places = Counter(right for kind, n, right in found if (kind, n) == ("choice", options))
        assert max(places.values()) - min(places.values()) <= 1
    assert {n for kind, n, _ in found if kind == "choice"} == set(range(2, 9))
    assert {n for kind, n, _ in found if kind == "scale"} == {3, 4, 5}
    levels = Counter(right for kind, n, right in found if (kind, n) == ("scale", 3))
    assert max(levels.values()) / kinds["scale"] < 0.4


def test_no_general_question_is_there_twice() -> None:
    """No state is there twice, nor a question about one."""
    lines = [json.loads(line) for line in GENERAL.read_text().splitlines()]
    states = [line["state"] for line in lines]
    assert len(set(states)) == len(states)
    for line in lines:
        texts = [json.dumps(question) for question in line["questions"].values()]
        assert len(set(texts)) == len(texts)


def test_the_demo_set_is_the_same_each_time() -> None:
    """The demo model's questions are of all types, and equal in every run."""
    found = question_set("demo")
    assert found.sha256 == question_set("demo").sha256
    assert found.num_questions >= 200
    assert set(Counter(kind for kind, _, _ in asked(found))) == {"statement", "choice", "scale"}


def test_a_file_is_read(tmp_path: Path) -> None:
    """Each line is one state; right answers become places among the options."""
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps(STATE) + "\n\n" + json.dumps(STATE) + "\n")
    found = read_questions(file)
    assert found.name == "mine.jsonl"
    assert len(found.states) == 2
    assert asked(found)[:3] == [("statement", 2, 1), ("choice", 2, 1), ("scale", 3, 2)]
    assert json.loads(bytes(found.states[0].state)) == {"note": "It rains."}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"answers": {"wet": True, "what": "snow"}}, "'much' has no answer"),
        ({"answers": {"wet": 1, "what": "snow", "much": 2}}, "1 is no answer of 'wet'"),
        ({"answers": {"wet": True, "what": "hail", "much": 2}}, "'hail' is no answer of 'what'"),
        ({"answers": {"wet": True, "what": "snow", "much": 3}}, "3 is no answer of 'much'"),
        ({"answers": {"wet": True, "what": "snow", "much": True}}, "True is no answer of 'much'"),
        ({"questions": {"wet": {"type": "box"}}}, "Line 2 of mine.jsonl"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_wrong_line_is_named(change: dict[str, object], told: str, tmp_path: Path) -> None:
    """A line that is no state with questions and right answers is refused by its number."""
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps(STATE) + "\n" + json.dumps({**STATE, **change}) + "\n")
    with pytest.raises(UsageError, match=r"Line 2 of mine\.jsonl") as error:
        read_questions(file)
    assert told in str(error.value)


def test_files_without_questions_are_refused(tmp_path: Path) -> None:
    """A file that is absent, is no text or asks nothing is refused by name."""
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    for name in ("absent.jsonl", "empty.jsonl", "binary.jsonl"):
        with pytest.raises(UsageError, match=name):
            read_questions(tmp_path / name)
