"""How questions are read: what of each is scored, and the probabilities that scores make."""

from __future__ import annotations

import math
import string
import uuid
from collections.abc import Callable, Sequence
from itertools import product
from typing import Self

import msgspec

from worker.api.decisions.layout import PromptLayout
from worker.api.decisions.question import (
    AnswerOption,
    AnswerReading,
    Decision,
    QuestionKind,
    TypedQuestion,
)
from worker.api.intake.facts import ChosenAdapters, ModelFacts
from worker.budget import Budget
from worker.chat.format import ChatFormat
from worker.engine.request import GenerationParams, check_length
from worker.engine.scoring import Score, ScoringRequest, Suffix
from worker.errors import BackendError, RequestError
from worker.model.calibration import PROMPT_VERSION, ScoringMode

# Two options whose ln p differ by less are read again, alone: so much do steps with others, other
# pieces of the state, and states from the cache change (docs/decisions.md).
TIE = 0.05

_NO_PROBABILITY = "The model gives none of the options a probability."
_YES_NO = (("yes", "Yes", "YES"), ("no", "No", "NO"))
_TRUTHS = ({"true", "false"}, {"yes", "no"})
_LETTERS = tuple(string.ascii_uppercase)
_CODES = tuple(map("".join, product(_LETTERS, repeat=2)))


class OptionsView(msgspec.Struct, frozen=True):
    """A question in one order of its options.

    order    place of each shown option in the question
    first    place of its first suffix among the request's
    labels   of each shown option: places of its spellings among the candidates; letters
    count    suffixes of its options, behind the first; texts
    """

    order: tuple[int, ...]
    first: int
    labels: tuple[tuple[int, ...], ...] = ()
    count: int = 0


class PlannedQuestion(msgspec.Struct, frozen=True):
    """
    native  how a family of decision models reads its scores; None: as any model's are read
    """

    views: tuple[OptionsView, ...]
    mode: ScoringMode
    temperature: float | None
    native: NativeReading | None = None


class NativeReading(msgspec.Struct, frozen=True):
    """
    family   of the model
    truth    places of true and false in a question that is answered by ratings, the lowest first;
             None: its options are answered
    """

    family: str
    truth: tuple[int, int] | None = None


class Plan(msgspec.Struct, frozen=True):
    """What is asked of the engine, and what becomes of its answer.

    num_tokens  of the state, and of each question as it is asked first: what it found in the cache
                and in how many orders it asks change nothing
    """

    request: ScoringRequest
    asked: tuple[PlannedQuestion, ...]
    num_tokens: int

    def with_adapters(self, choice: ChosenAdapters) -> Self:
        """The same, computed with the adapters that were chosen; calibrated without any alone."""
        prompt, asked = choice.of(self.request.prompt), self.asked
        if prompt.key:
            asked = tuple(msgspec.structs.replace(each, temperature=None) for each in asked)
        request = msgspec.structs.replace(self.request, prompt=prompt)
        return msgspec.structs.replace(self, request=request, asked=asked)

    def with_priority(self, priority: int) -> Self:
        request = msgspec.structs.replace(self.request, priority=priority)
        return msgspec.structs.replace(self, request=request)

    def readings(self, scores: Sequence[Score]) -> list[AnswerReading]:
        """Of each question, in order. Raises BackendError where none of its options is possible."""
        return [_reading(asked, scores) for asked in self.asked]


def plan_of(decision: Decision, facts: ModelFacts, chat: ChatFormat | None, budget: Budget) -> Plan:
    """Raises RequestError that names the field; blocks.

    chat: None for a model without a template
    """
    writer = _Writer(decision, facts, PromptLayout(decision, chat, facts, decision.media), budget)
    for question in decision.questions:
        budget.check()
        writer.add(question)
    return writer.plan()


class _Writer:
    """Collects the suffixes of all questions."""

    def __init__(
        self, decision: Decision, facts: ModelFacts, layout: PromptLayout, budget: Budget
    ) -> None:
        settings = facts.settings
        self._layout, self._param, self._budget = layout, decision.param, budget
        self._mode, self._orders = settings.decisions, settings.decisions_orders
        self._ends = _ends(facts, is_plain=layout.is_plain)
        self._state = layout.state()
        self._suffixes: list[Suffix] = []
        self._asked: list[PlannedQuestion] = []
        self._num_tokens = len(self._state.tokens)
        self._calibration = facts.calibration
        self._max_length = facts.max_length

    def add(self, question: TypedQuestion) -> None:
        kind, options, order = canonical(question)
        labels = self._labels(kind, len(options))
        mode: ScoringMode = "texts" if self._mode == "texts" and kind != "statement" else "letters"
        if labels is None:
            if self._mode == "letters":
                raise RequestError(
                    f"{question.place} has {len(options)} options, and the model's vocabulary has "
                    "no token of its own for each.",
                    param=question.place,
                    hint="Start the worker with --decisions auto.",
                )
            mode = "texts"
        turns = self._orders if kind == "choice" else 1
        views: list[OptionsView] = []
        for turn in _rotations(len(options), turns):
            shown = [options[place] for place in turn]
            names = tuple(order[place] for place in turn)
            if mode == "letters" and labels is not None:
                views.append(self._as_letters(kind, question, shown, names, labels))
            else:
                views.append(self._as_texts(kind, question, shown, names))
        self._num_tokens += len(self._suffixes[views[0].first].tokens)
        temperature = self._temperature(kind, len(options), mode)
        self._asked.append(PlannedQuestion(tuple(views), mode, temperature))

    def _temperature(self, kind: QuestionKind, count: int, mode: ScoringMode) -> float | None:
        measured = self._calibration
        if measured is None or not measured.is_for(PROMPT_VERSION, self._orders):
            return None
        return measured.temperature(kind, count, mode)

    def _labels(self, kind: QuestionKind, count: int) -> list[tuple[str, tuple[int, ...]]] | None:
        """A label for each option with its tokens; None: there are too few."""
        if kind == "statement":
            return self._distinct(_YES_NO, 2)
        for names in (_LETTERS, _CODES):
            if count <= len(names) and (found := self._distinct([(n,) for n in names], count)):
                return found
        return None

    def _distinct(
        self, names: Sequence[tuple[str, ...]], count: int
    ) -> list[tuple[str, tuple[int, ...]]] | None:
        """The first labels that are one token behind the tail, in one of their spellings at least,
        and no other label's."""
        found: list[tuple[str, tuple[int, ...]]] = []
        taken: set[int] = set()
        for spellings in names:
            ids: dict[int, None] = {}
            for spelling in spellings:
                for text in (spelling, f" {spelling}"):
                    tokens = self._layout.behind_tail(text)
                    if tokens is not None and len(tokens) == 1 and tokens[0] not in taken:
                        ids[tokens[0]] = None
            if ids:
                taken |= ids.keys()
                found.append((spellings[0], tuple(ids)))
            if len(found) == count:
                return found
        return None

    def _as_letters(
        self,
        kind: QuestionKind,
        question: TypedQuestion,
        shown: Sequence[AnswerOption],
        order: tuple[int, ...],
        labels: Sequence[tuple[str, tuple[int, ...]]],
    ) -> OptionsView:
        text = _question_text(kind, question, shown, [label for label, _ in labels])
        tokens, media = self._layout.suffix(text)
        candidates = [token for _, ids in labels for token in ids]
        places, first = list[tuple[int, ...]](), 0
        for _, ids in labels:
            places.append(tuple(range(first, first + len(ids))))
            first += len(ids)
        suffix = Suffix(tokens, candidates=tuple(candidates), media=media)
        return OptionsView(order, self._add(suffix, question.place), tuple(places))

    def _as_texts(
        self,
        kind: QuestionKind,
        question: TypedQuestion,
        shown: Sequence[AnswerOption],
        order: tuple[int, ...],
    ) -> OptionsView:
        """The question with the first token of each option, then each option's other tokens."""
        text = _question_text(kind, question, shown, None)
        tokens, media = self._layout.suffix(text)
        spelled = [self._layout.answer(option.text) for option in shown]
        if not all(spelled):
            raise RequestError(
                f"{question.place} has an option without text.", param=question.place
            )
        firsts = tuple(answer[0] for answer in spelled)
        root = Suffix(tokens, candidates=firsts, media=media, is_shared=True)
        first = self._add(root, question.place)
        for answer in spelled:
            self._add(
                Suffix(
                    answer,
                    num_scored=len(answer) - 1,
                    candidates=self._ends,
                    behind=root,
                ),
                question.place,
            )
        return OptionsView(order, first, count=len(spelled))

    def _add(self, suffix: Suffix, place: str) -> int:
        """Its place among the suffixes. Raises RequestError for more than the context holds, which
        names the longer one: the state, or the question at `place`."""
        state, own = len(self._state.tokens), sum(len(each.tokens) for each in suffix.chain)
        check_length(state + own, self._max_length, place if own > state else self._param)
        self._suffixes.append(suffix)
        return len(self._suffixes) - 1

    def plan(self) -> Plan:
        asked = tuple(self._asked)
        request = ScoringRequest(
            id=uuid.uuid4().hex,
            prompt=self._state,
            params=GenerationParams(max_tokens=0, prompt_param=self._param),
            suffixes=tuple(self._suffixes),
            doubtful=lambda scores: near_ties(asked, scores),
        )
        return Plan(request, asked, self._num_tokens)


def _ends(facts: ModelFacts, *, is_plain: bool) -> tuple[int, ...]:
    """Tokens that end an option: those that end an answer, and a line of a plain text."""
    ends = {*facts.vocab.end_tokens}
    if is_plain:
        ends |= {token for token, piece in enumerate(facts.vocab.pieces) if piece.startswith(b"\n")}
    return tuple(sorted(ends))


def canonical(question: TypedQuestion) -> tuple[QuestionKind, list[AnswerOption], tuple[int, ...]]:
    """(kind, options in an order that the client's does not change, place of each in the
    question). A choice between true and false, or yes and no, is a statement."""
    options = question.options
    texts = [option.text.strip().lower() for option in options]
    if question.kind == "statement":
        return "statement", list(options), (0, 1)
    if question.kind == "choice" and len(options) == 2 and {*texts} in _TRUTHS:
        order = (0, 1) if texts[0] in ("true", "yes") else (1, 0)
        return "statement", [options[place] for place in order], order
    if question.kind == "scale":
        return "scale", list(options), tuple(range(len(options)))
    order = tuple(sorted(range(len(options)), key=lambda place: options[place].text))
    return "choice", [options[place] for place in order], order


def _rotations(count: int, turns: int) -> list[tuple[int, ...]]:
    """Up to so many rotations of the places, as far apart as can be."""
    turns = max(1, min(turns, count))
    starts = [turn * count // turns for turn in range(turns)]
    return [tuple((start + place) % count for place in range(count)) for start in starts]


def _question_text(
    kind: QuestionKind,
    question: TypedQuestion,
    shown: Sequence[AnswerOption],
    labels: Sequence[str] | None,
) -> str:
    """What is asked behind the state; labels: None where options are answered by their texts."""
    instructions = question.instructions.strip()
    if kind == "statement":
        lines = [f"Is this true? {instructions}"] if instructions else ["Which one is true?"]
        for word, option in zip(("Yes", "No"), shown, strict=True):
            if option.description:
                lines.append(f"{word}: {option.description}")
        return "\n".join([*lines, "Answer yes or no."])
    usual = "Which option fits best?" if kind == "choice" else "Which level fits best?"
    lines = [f"Question: {instructions or usual}"]
    for place, option in enumerate(shown):
        text = option.text if not option.description else f"{option.text}: {option.description}"
        lines.append(f"- {text}" if labels is None else f"{labels[place]}. {text}")
    lines.append("Answer with one option." if labels is None else "Answer with one letter.")
    return "\n".join(lines)


def _log_options(
    view: OptionsView, scores: Sequence[Score], spelled: Callable[[Sequence[float]], float]
) -> list[float]:
    """ln p of each option of the question, in its order. Few numbers of many questions: numpy takes
    ten times as long, and the engine's thread waits for `near_ties`.

    spelled: ln p of a label from those of its spellings
    """
    values = [0.0] * len(view.order)
    root = scores[view.first].candidates
    for place, target in enumerate(view.order):
        if view.labels:
            values[target] = spelled([root[each] for each in view.labels[place]])
        else:
            own = scores[view.first + 1 + place]
            values[target] = root[place] + sum(own.tokens) + _log_sum(own.candidates)
    return values


def _log_sum(values: Sequence[float]) -> float:
    """ln sum exp(values); not finite where one is NaN, or all are -inf."""
    most = max(values)
    if most == -math.inf:
        return most
    return most + math.log(sum(math.exp(value - most) for value in values))


def _mean(asked: PlannedQuestion, scores: Sequence[Score]) -> tuple[list[float], list[list[float]]]:
    """(ln p of the options, normalised, mean of all orders; the same of each order, as it is)"""
    spelled = _log_sum if asked.native is None else max
    each = [_log_options(view, scores, spelled) for view in asked.views]
    totals = [_log_sum(values) for values in each]
    if not all(map(math.isfinite, totals)):
        raise BackendError(_NO_PROBABILITY, code="NOT_FINITE")
    normalised = [
        [value - total for value in values] for values, total in zip(each, totals, strict=True)
    ]
    mean = [sum(values) / len(each) for values in zip(*normalised, strict=True)]
    if max(mean) == -math.inf:  # each is impossible in one of the orders
        raise BackendError(_NO_PROBABILITY, code="NOT_FINITE")
    return mean, each


def _reading(asked: PlannedQuestion, scores: Sequence[Score]) -> AnswerReading:
    mean, each = _mean(asked, scores)
    most = max(mean)
    powers = [math.exp((value - most) / (asked.temperature or 1.0)) for value in mean]
    total, best = sum(powers), mean.index(most)
    found, version = tuple(power / total for power in powers), PROMPT_VERSION
    if asked.native is not None:
        found, version = _native(asked, asked.native, each), asked.native.family
    return AnswerReading(
        found,
        label_mass=sum(math.exp(value) for values in each for value in values) / len(each),
        orders=len(each),
        flips=sum(values.index(max(values)) != best for values in each),
        mode=asked.mode,
        temperature=asked.temperature,
        prompt_version=version,
    )


def _native(
    asked: PlannedQuestion, native: NativeReading, each: Sequence[Sequence[float]]
) -> tuple[float, ...]:
    """The options' probabilities: the mean of those of each order, and not of their logarithms; a
    statement's is the mean of its ratings, of which the lowest is 0 and the highest 1."""
    found = [0.0] * len(each[0])
    for values in each:
        most = max(values)
        powers = [math.exp((value - most) / (asked.temperature or 1.0)) for value in values]
        total = sum(powers) * len(each)
        found = [sofar + power / total for sofar, power in zip(found, powers, strict=True)]
    if native.truth is None:
        return tuple(found)
    true = sum(rating * p for rating, p in enumerate(found)) / (len(found) - 1)
    return (true, 1 - true) if native.truth == (0, 1) else (1 - true, true)


def near_ties(asked: Sequence[PlannedQuestion], scores: Sequence[Score]) -> list[int]:
    """Suffixes of questions whose two likeliest options are nearly as likely."""
    found: list[int] = []
    for question in asked:
        if len(question.views[0].order) < 2:
            continue
        try:
            mean, _ = _mean(question, scores)
        except BackendError:  # `readings` tells
            continue
        second, first = sorted(mean)[-2:]
        if first - second < TIE:
            for view in question.views:
                found += range(view.first, view.first + 1 + view.count)
    return found
