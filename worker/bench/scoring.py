"""Quality inside the child process: the reference written, or a level held against it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from worker.bench.choices import answer, compare_choices
from worker.bench.corpus import Windows, cut, text_of
from worker.bench.greedy import compare_greedy, continue_greedily
from worker.bench.job import QualityAnswer, QualityJob
from worker.bench.quality import Tokens, compare, summarise
from worker.bench.questions import Question, demo_questions, general_questions
from worker.bench.reference import ANSWERS, ReferenceRows, condense, shape_of
from worker.bench.rows import logits_of
from worker.errors import BackendError, UsageError
from worker.llama.backend import LlamaBackend

Report = Callable[[float], None]
# Of a job's time; the rest is the text's.
_CHOICES, _GREEDY = 0.1, 0.1


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What the reference answered besides its rows."""

    choices: list[int]
    greedy: list[list[int]]


def score(backend: LlamaBackend, job: QualityJob, report: Report) -> QualityAnswer:
    """Run the job; for the reference, everything is compared with itself."""
    folder = Path(job.folder)
    windows = cut(text_of(job.corpus), backend.vocab, job.sizes.window, job.sizes.windows)
    if job.writes:
        shape = shape_of(len(windows.tokens) * windows.num_scored, backend.vocab_size)
        rows = ReferenceRows.create(folder, windows, shape)
    else:
        rows = ReferenceRows(folder)
        _check_same_text(rows.windows, windows)
    found: list[Tokens] = []
    for index, (logits, targets) in enumerate(logits_of(backend, windows, job.batch_rows)):
        if not np.isfinite(logits).all():
            raise BackendError("It computes values that are no numbers.", code="NOT_FINITE")
        if job.writes:
            rows.write(index, condense(logits, targets, rows.shape, seed=index))
        found.append(compare(logits, targets, rows.read(index)))
        report((1 - _CHOICES - _GREEDY) * (index + 1) / len(windows.tokens))
    questions = _questions(job)
    mine = Answers(
        choices=answer(backend, questions),
        greedy=continue_greedily(
            backend, windows, job.sizes.greedy_prompts, job.sizes.greedy_tokens
        ),
    )
    report(1.0)
    answers = folder / ANSWERS
    if job.writes:
        answers.write_bytes(msgspec.json.encode(mine))
    wanted = msgspec.json.decode(answers.read_bytes(), type=Answers)
    return QualityAnswer(
        quality=summarise(found, windows.tokens.shape[1]),
        choices=compare_choices(questions, wanted.choices, mine.choices),
        greedy=compare_greedy(wanted.greedy, mine.greedy),
        head=rows.shape.head,
        drawn=rows.shape.drawn,
        text_tokens=windows.num_tokens,
    )


def _questions(job: QualityJob) -> list[Question]:
    make = demo_questions if job.questions == "demo" else general_questions
    return make(job.sizes.questions)


def _check_same_text(reference: Windows, level: Windows) -> None:
    """Levels of one model cut a text into the same tokens."""
    if not np.array_equal(reference.tokens, level.tokens):
        raise UsageError(
            "The file's tokenizer cuts the text differently from the reference's.",
            hint="Compare files of one model only.",
        )
