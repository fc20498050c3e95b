"""What a level answers: multiple choice, and greedy continuations of the text.

A flip is a question whose answer turns from right to wrong or from wrong to right beside the
reference (Dutta et al. 2024, arXiv:2407.09141). Accuracy alone hides changes that cancel out.
"""

from __future__ import annotations

import msgspec
import numpy as np

from worker.bench.figures import Floats, share_and_error
from worker.bench.quality.questions import Question
from worker.bench.quality.windows import Windows, compute, gather, log_sums
from worker.bench.sections import Choices, Greedy
from worker.errors import UsageError, quantity
from worker.llama.backend import LlamaBackend

_PROMPT_TOKENS = 32  # of a continuation


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The index of the ending for each question, and the tokens of each continuation."""

    choices: list[int]
    greedy: list[list[int]]


def choose(backend: LlamaBackend, questions: list[Question]) -> list[int]:
    """The likeliest ending of each question, by the sum of its tokens' ln p."""
    return [int(np.argmax(_scores(backend, question))) for question in questions]


def _scores(backend: LlamaBackend, question: Question) -> Floats:
    """Σ ln p of the tokens that the endings do not have in common, [endings]."""
    texts = [
        backend.vocab.tokenize(question.text + end, add_special=True, parse_special=False)
        for end in question.endings
    ]
    if backend.vocab.adds_eos:  # it would be scored as a part of the ending
        texts = [text[:-1] for text in texts]
    if (longest := max(map(len, texts))) > backend.batch.capacity:
        raise UsageError(
            f"The question {question.text[:50]!r} has {quantity(longest, 'token')} with a choice, "
            f"and {backend.batch.capacity} is the most.",
            hint="Shorten it, or raise --batch-size.",
        )
    shared = 0
    while all(shared < len(text) - 1 and text[shared] == texts[0][shared] for text in texts):
        shared += 1
    shared = max(1, shared)
    backend.drop(0)
    first = compute(backend, np.array(texts[0][:shared], np.int32), 0, [shared - 1])
    scores: list[float] = []
    for text in texts:
        rows, ids = first, np.array(text, np.int32)
        if len(rest := ids[shared:]) > 1:
            start = shared if backend.drop(0, shared) else 0
            if not start:  # a state that cannot be cut back
                backend.drop(0)
            wanted = range(shared - start, len(ids) - 1 - start)
            rows = np.concatenate([first, compute(backend, ids[start:-1], start, wanted)])
        scores.append(float(gather(rows, log_sums(rows), rest[:, None]).sum()))
    return np.array(scores)


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


def continue_greedily(
    backend: LlamaBackend, windows: Windows, prompts: int, tokens: int
) -> list[list[int]]:
    """The likeliest `tokens` tokens after the beginnings of some windows, side by side.

    An end of generation is a token like any other. At most one prompt for each slot.
    """
    count = min(prompts, len(windows.tokens), backend.shape.num_slots)
    length = min(_PROMPT_TOKENS, windows.tokens.shape[1])
    starts = [windows.tokens[i * len(windows.tokens) // count][:length] for i in range(count)]
    last: list[int] = []
    for slot, start in enumerate(starts):
        backend.drop(slot)
        last.append(int(compute(backend, start, 0, [length - 1], slot).argmax()))
    texts = [[token] for token in last]
    for step in range(tokens - 1):
        backend.batch.clear()
        for slot, text in enumerate(texts):
            backend.batch.add_one(text[-1], length + step, slot)
        backend.decode()
        for slot, text in enumerate(texts):
            text.append(int(backend.logits(slot).argmax()))
    for slot in range(count):
        backend.drop(slot)
    return texts


def compare_greedy(reference: list[list[int]], level: list[list[int]]) -> Greedy:
    """Where the level's continuations leave the reference's; the same prompts for both."""
    first = tuple(
        next((i for i, (a, b) in enumerate(zip(wanted, got, strict=True)) if a != b), None)
        for wanted, got in zip(reference, level, strict=True)
    )
    length = len(reference[0])
    places = [length if place is None else place for place in first]
    return Greedy(
        prompts=len(first),
        tokens=length,
        identical=first.count(None),
        first_difference=first,
        median_first_difference=float(np.median(places)),
    )
