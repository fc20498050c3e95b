"""Multiple choice: which of a few endings a level finds likeliest, and how often it flips.

A flip is a question whose answer turns from right to wrong or from wrong to right beside the
reference (Dutta et al. 2024, arXiv:2407.09141): accuracy alone hides changes that cancel out.
"""

from __future__ import annotations

import msgspec
import numpy as np

from worker.bench.questions import Question
from worker.bench.rows import Floats, Logits, gathered, log_sums
from worker.bench.statistics import share_and_error
from worker.llama.backend import LlamaBackend


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """A level's answers: shares of `questions`, with binomial errors.

    changed: any other answer than the reference's, also from one wrong answer to another
    """

    questions: int
    accuracy: float
    accuracy_error: float
    accuracy_reference: float
    flips: float
    flips_error: float
    changed: float


def answer(backend: LlamaBackend, questions: list[Question]) -> list[int]:
    """The likeliest ending of each question, by the sum of its tokens' ln p."""
    return [int(np.argmax(_scores(backend, question))) for question in questions]


def compare_choices(questions: list[Question], reference: list[int], level: list[int]) -> Choices:
    """Accuracy and flips; answers are indices of endings, the right one is 0."""
    count = len(questions)
    right = [index == 0 for index in level]
    was_right = [index == 0 for index in reference]
    flips = sum(a != b for a, b in zip(right, was_right, strict=True))
    accuracy, accuracy_error = share_and_error(sum(right), count)
    flip_share, flip_error = share_and_error(flips, count)
    return Choices(
        questions=count,
        accuracy=accuracy,
        accuracy_error=accuracy_error,
        accuracy_reference=sum(was_right) / count,
        flips=flip_share,
        flips_error=flip_error,
        changed=sum(a != b for a, b in zip(level, reference, strict=True)) / count,
    )


def _scores(backend: LlamaBackend, question: Question) -> Floats:
    """Σ ln p of what the endings do not have in common, [endings]."""
    texts = [
        backend.vocab.tokenize(question.text + end, add_special=True, parse_special=False)
        for end in question.endings
    ]
    if backend.vocab.adds_eos:  # it would be scored as a part of the ending
        texts = [text[:-1] for text in texts]
    shared = 0
    while all(shared < len(text) - 1 and text[shared] == texts[0][shared] for text in texts):
        shared += 1
    shared = max(1, shared)
    backend.drop(0)
    first = _compute(backend, texts[0][:shared], 0, 1)
    scores: list[float] = []
    for text in texts:
        rows, rest = first, np.array(text[shared:], np.int32)
        if len(rest) > 1:
            if backend.drop(0, shared):
                more = _compute(backend, text[shared:-1], shared, len(rest) - 1)
            else:  # a state that cannot be cut back
                backend.drop(0)
                more = _compute(backend, text[:-1], 0, len(rest) - 1)
            rows = np.concatenate([first, more])
        scores.append(float(gathered(rows, log_sums(rows), rest[:, None]).sum()))
    return np.array(scores)


def _compute(backend: LlamaBackend, tokens: list[int], start: int, outputs: int) -> Logits:
    """Compute tokens at positions from `start`; logits of the last `outputs` of them."""
    batch = backend.batch
    batch.clear()
    batch.add(np.array(tokens, np.int32), start, 0)
    wanted = range(len(tokens) - outputs, len(tokens))
    for row in wanted:
        batch.outputs[row] = 1
    backend.decode()
    return np.stack([backend.logits(row) for row in wanted])
