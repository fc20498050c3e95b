"""Questions with right answers: states, and questions about each in the form of /v1/systemone.

A line of a file is one state: {"state": …, "questions": {id: question}, "answers": {id: answer}}.
The answer of a noul is true or false, of a choice the name of a criterion, of a score the index of
a level.
"""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any, Literal

import msgspec

from worker.bench.plan import Questions
from worker.errors import UsageError
from worker.model.calibration import QuestionKind

_HERE = Path(__file__).parent
GENERAL = _HERE / "general.jsonl"
_TABLE = _HERE.parent / "quality" / "questions_demo.txt"
_MAX_BYTES = 64 << 20
_SEED = 17
_SUMS = 40  # comparisons of numbers among the demo model's questions
_PER_ROW = 12  # questions of each table of facts
# Legs of animals, as the demo model learned them; the levels of its scales.
_LEGS = {"snake": 0, "whale": 0, "hen": 2, "duck": 2, "owl": 2, "crow": 2, "goose": 2, "dog": 4,
         "cat": 4, "cow": 4, "horse": 4, "frog": 4, "fox": 4, "bee": 6, "ant": 6,
         "spider": 8}  # fmt: skip
_COUNTS = ("no legs", "two legs", "four legs", "six legs", "eight legs")
_HINT = 'Write a state a line: {"state": …, "questions": {…}, "answers": {…}}.'


class _Noul(msgspec.Struct, tag="noul", forbid_unknown_fields=True):
    instructions: Any = None
    criteria: dict[Literal["true", "false"], Any] | None = None


class _Choice(msgspec.Struct, tag="choice", forbid_unknown_fields=True):
    criteria: dict[str, Any]
    instructions: Any = None


class _Score(msgspec.Struct, tag="score", forbid_unknown_fields=True):
    criteria: list[Any]
    instructions: Any = None


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    state: msgspec.Raw
    questions: dict[str, msgspec.Raw]
    answers: dict[str, bool | int | str]


class AskedQuestion(msgspec.Struct, frozen=True):
    """kind, and the number of options; right: the index of the right one, of a statement 0 is
    true"""

    kind: QuestionKind
    num_options: int
    right: int


class AskedState(msgspec.Struct, frozen=True):
    """One request: `state` and `questions` as its body has them, `asked` by the same ids."""

    state: msgspec.Raw
    questions: dict[str, msgspec.Raw]
    asked: dict[str, AskedQuestion]


class QuestionSet(msgspec.Struct, frozen=True):
    """name: a file's, or that of one of ours; sha256: of its content"""

    name: str
    sha256: str
    states: tuple[AskedState, ...]

    @property
    def num_questions(self) -> int:
        return sum(len(state.asked) for state in self.states)


def question_set(kind: Questions) -> QuestionSet:
    """One of ours."""
    if kind == "general":
        return read_questions(GENERAL, name="general questions")
    return _parse(b"\n".join(map(msgspec.json.encode, demo_lines())), "the demo model's questions")


def questions_at(place: str, kind: Questions) -> QuestionSet:
    """Those of a file, or without one those of ours that the plan names."""
    return read_questions(Path(place)) if place else question_set(kind)


def read_questions(path: Path, name: str | None = None) -> QuestionSet:
    """The questions of a file. Raises UsageError that names the line."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", hint=_HINT) from None
    if len(data) > _MAX_BYTES:
        raise UsageError(f"{path} is larger than {_MAX_BYTES >> 20} MiB.", hint="Split it.")
    return _parse(data, name or path.name)


def _parse(data: bytes, name: str) -> QuestionSet:
    states: list[AskedState] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line, type=_Line)
            asked = {key: _question(found, key) for key in found.questions}
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
            raise UsageError(
                f"Line {number} of {name} is no state with questions: {str(error)[:200]}.",
                hint=_HINT,
            ) from None
        if asked:
            states.append(AskedState(found.state, found.questions, asked))
    if not states:
        raise UsageError(f"{name} has no questions.", hint=_HINT)
    return QuestionSet(name, hashlib.sha256(data).hexdigest(), tuple(states))


def _question(line: _Line, key: str) -> AskedQuestion:
    """Raises ValueError where the answer is none of the question's."""
    if key not in line.answers:
        raise ValueError(f"{key!r} has no answer")
    answer = line.answers[key]
    question = msgspec.json.decode(line.questions[key], type=_Noul | _Choice | _Score)
    if isinstance(question, _Noul):
        if type(answer) is bool:
            return AskedQuestion("statement", 2, 0 if answer else 1)
    elif isinstance(question, _Choice):
        if isinstance(answer, str) and answer in question.criteria:
            names = list(question.criteria)
            return AskedQuestion("choice", len(names), names.index(answer))
    elif type(answer) is int and 0 <= answer < len(question.criteria):
        return AskedQuestion("scale", len(question.criteria), answer)
    raise ValueError(f"{answer!r} is no answer of {key!r}")


def demo_lines() -> list[dict[str, object]]:
    """Questions in the words of the demo model's training text, the same ones in every run."""
    rng = random.Random(_SEED)  # noqa: S311  (no secrets)
    found: list[dict[str, object]] = []

    def add(state: str, question: dict[str, object], answer: bool | int | str) -> None:
        found.append({"state": state, "questions": {"q": question}, "answers": {"q": answer}})

    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        asks, says, table = line.split("|")
        pairs = [pair.split("/") for pair in table.split(";")]
        answers = list(dict.fromkeys(value for _, value in pairs))
        for key, value in rng.sample(pairs, min(_PER_ROW, len(pairs))):
            others = [other for other in answers if other not in (key, value)]
            names = [value, *rng.sample(others, rng.randint(1, 4))]
            rng.shuffle(names)
            question = asks.format(key)
            add(
                question,
                {"type": "choice", "instructions": question, "criteria": dict.fromkeys(names)},
                value,
            )
            is_true = rng.random() < 0.5
            said = says.replace("*", value if is_true else rng.choice(others)).format(key)
            add(
                question,
                {"type": "noul", "instructions": f"{said[:1].upper()}{said[1:]}."},
                is_true,
            )
    for _ in range(_SUMS):
        a, b = rng.sample(range(100), 2)
        question = f"Is {a} more than {b}?"
        add(question, {"type": "noul", "instructions": question}, a > b)
    for animal, legs in _LEGS.items():
        question = f"How many legs does a {animal} have?"
        add(
            question,
            {"type": "score", "instructions": question, "criteria": list(_COUNTS)},
            legs // 2,
        )
        numbers = {f"{count} legs" if count else "no legs": None for count in (0, 2, 4, 6, 8)}
        right = f"{legs} legs" if legs else "no legs"
        add(question, {"type": "choice", "instructions": question, "criteria": numbers}, right)
    rng.shuffle(found)
    return found
