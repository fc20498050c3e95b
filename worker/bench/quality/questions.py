"""Multiple-choice questions: two sets of our own, and files of users."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec

from worker.bench.plan import BenchPlan, Corpus, Questions
from worker.errors import UsageError, quantity

_FOLDER = Path(__file__).parent
_SEED = 11
_SUMS = 48  # sums among the demo model's questions
_MAX_FILE_BYTES, _MOST = 16 << 20, 10_000
_LINE = '{"question": "2 + 2 is", "choices": ["4", "5"], "answer": 0}'


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """`text` is continued by one of `endings`; the first is right."""

    text: str
    endings: tuple[str, ...]


class QuestionLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a user's file, as MMLU has them; `answer` is the index of the right choice."""

    question: str
    choices: list[str]
    answer: int


def open_questions(path: Path) -> tuple[Corpus, int]:
    """Look at a file of questions in JSON lines: the file, and how many there are.

    Raises UsageError that names the line.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", hint=f"Name a file of lines like {_LINE}."
        ) from None
    if len(raw) > _MAX_FILE_BYTES:
        raise UsageError(
            f"{path} is larger than {_MAX_FILE_BYTES >> 20} MiB.", hint="Give a part of it."
        )
    count = sum(1 for _ in _own_questions(raw, path))
    if not 0 < count <= _MOST:
        raise UsageError(
            f"{path} has {quantity(count, 'question', ',')}.",
            hint=f"Give 1 to {_MOST:,}, each on a line like {_LINE}.",
        )
    sha256 = hashlib.sha256(raw).hexdigest()
    return Corpus(name=path.name, path=str(path), sha256=sha256, nbytes=len(raw)), count


def _own_questions(raw: bytes, path: Path) -> Iterator[Question]:
    """Each choice continues its question behind a blank; the right one becomes the first.

    Raises UsageError.
    """
    for number, text in enumerate(raw.splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = msgspec.json.decode(text, type=QuestionLine)
            if len(set(line.choices)) < max(2, len(line.choices)) or not all(line.choices):
                raise ValueError("it needs two choices or more, all of them different")
            if not 0 <= line.answer < len(line.choices):
                raise ValueError(f"answer must be from 0 to {len(line.choices) - 1}")
            if not line.question.strip():
                raise ValueError("its question is empty")
        except (ValueError, RecursionError) as error:  # msgspec's own are ValueErrors
            raise UsageError(
                f"Line {number} of {path} is no question: {str(error).rstrip('.')}.",
                hint=f"Write each as {_LINE}.",
            ) from None
        ends = [end if end[0].isspace() else f" {end}" for end in line.choices]
        right = ends.pop(line.answer)
        yield Question(text=line.question.rstrip(), endings=(right, *ends))


def questions_of(plan: BenchPlan, most: int) -> list[Question]:
    """At most `most` questions of the plan, the same ones in every run.

    Raises UsageError if the user's file has changed since the run began.
    """
    rng = random.Random(_SEED)  # noqa: S311  (order, no secrets)
    if plan.own_questions is not None:
        file, _ = plan.own_questions
        raw = Path(file.path).read_bytes()
        if hashlib.sha256(raw).hexdigest() != file.sha256:
            raise UsageError(f"{file.path} has changed meanwhile.", hint="Run the command again.")
        found = list(_own_questions(raw, Path(file.path)))
    else:
        found = question_set(plan.questions, rng)
    rng.shuffle(found)
    return found[:most]


def question_set(kind: Questions, rng: random.Random) -> list[Question]:
    """All questions of a set of our own."""
    return _demo_questions(rng) if kind == "demo" else _general_questions()


def _general_questions() -> list[Question]:
    """A line of the file is the text and its endings, parted by `|`."""
    lines = (_FOLDER / "questions_general.txt").read_text(encoding="utf-8").splitlines()
    parts = [line.split("|") for line in lines]
    return [Question(text=text, endings=tuple(endings)) for text, *endings in parts]


def _demo_questions(rng: random.Random) -> list[Question]:
    """Questions in the words of the demo model's training text.

    A line of the file is a question, an answer with a star for what is asked, and its rows:
    `What is the capital of {}?|the capital of {} is *|France/Paris;Spain/Madrid`.
    """
    found: list[Question] = []
    for line in (_FOLDER / "questions_demo.txt").read_text(encoding="utf-8").splitlines():
        question, answer, table = line.split("|")
        pairs = [pair.split("/") for pair in table.split(";")]
        answers = list(dict.fromkeys(value for _, value in pairs))
        for key, value in pairs:
            wrong = rng.sample([other for other in answers if other not in (key, value)], 3)
            words = [value, *wrong]
            found.append(_demo_question(question.format(key), answer.replace("{}", key), words))
    for _ in range(_SUMS):
        a, b = rng.randint(2, 60), rng.randint(2, 39)
        wrong = rng.sample([n for n in range(a + b - 12, a + b + 13) if n not in (a + b, a, b)], 3)
        numbers = [str(n) for n in (a + b, *wrong)]
        found.append(_demo_question(f"What is {a} plus {b}?", f"{a} plus {b} is *", numbers))
    return found


def _demo_question(question: str, answer: str, words: list[str]) -> Question:
    """`answer` has a star where one of `words` belongs."""
    head, _, tail = answer.partition("*")
    text = f"Question: {question}\nAnswer: {head[:1].upper()}{head[1:]}".rstrip()
    return Question(text=text, endings=tuple(f" {word}{tail}." for word in words))
