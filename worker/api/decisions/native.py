"""Decision models that are asked by their own file: its template `systemone` writes each question.

What each family is shown and where its answer is read is what llama-server does
(`tools/server/server-decision.cpp` of October 2026). As everywhere here, what clients send is text:
no control token of it is parsed.
"""

from __future__ import annotations

import string
import uuid
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import product
from typing import Any, cast

import msgspec

from worker.api.decisions.question import AnswerOption, Decision, QuestionKind, TypedQuestion
from worker.api.decisions.reading import (
    NativeReading,
    OptionsView,
    Plan,
    PlannedQuestion,
    canonical,
    near_ties,
)
from worker.api.decisions.tokens import MARK, PromptTokens
from worker.api.intake.facts import ModelFacts
from worker.budget import Budget
from worker.chat.template import ChatTemplate
from worker.engine.request import GenerationParams, Medium, Prompt, check_length
from worker.engine.scoring import ScoringRequest, Suffix
from worker.errors import RequestError
from worker.limits import OPTIONS
from worker.model.decider import DECISION_TEMPLATE

_LETTERS = tuple(string.ascii_uppercase)
_PAIRS = tuple(map("".join, product(_LETTERS, repeat=2)))
_NUMBERS = tuple(f"{number:02d}" for number in range(100))
_NAMES: dict[QuestionKind, str] = {"statement": "noul", "choice": "choice", "scale": "score"}
_RATINGS = 9  # of a statement by lev: 0 certainly not, 8 certainly
_YES_NO = (("yes", "Yes", "YES"), ("no", "No", "NO"))


class _Family(msgspec.Struct, frozen=True):
    """
    codes       labels in the order in which options get them, where a label is one token
    is_labelled the template is told each option's label
    true_first  a statement shows true before false
    is_rated    a statement is answered by ratings
    both_ways   a choice is asked in two orders
    is_sorted   members of objects are sorted by their names
    lists_all   each prompt lists all questions
    is_spelled  labels are words and numbers, in some spellings
    """

    codes: tuple[str, ...] = (*_LETTERS, *_PAIRS)
    is_labelled: bool = True
    true_first: bool = False
    is_rated: bool = False
    both_ways: bool = False
    is_sorted: bool = False
    lists_all: bool = False
    is_spelled: bool = False


FAMILIES = {
    "openjev": _Family((*_LETTERS, *string.ascii_lowercase), is_labelled=False, true_first=True),
    "lev": _Family(is_rated=True, both_ways=True, is_sorted=True),
    "nimble": _Family(lists_all=True),
    "pplx-decider": _Family(),
    "lfm2-d1": _Family(
        (
            *_LETTERS,
            *_NUMBERS,
            *string.ascii_lowercase,
            *(f"#{number}" for number in range(200)),
            *_PAIRS,
        ),
        true_first=True,
        is_spelled=True,
    ),
}


class NativeForm:
    """How one model is asked. Made once; raises RequestError for a template that cannot be read."""

    def __init__(self, facts: ModelFacts, name: str, source: str) -> None:
        self.name, self.family = name, FAMILIES[name]
        try:
            self.template = ChatTemplate(source, bos="", eos="", name=DECISION_TEMPLATE)
        except RequestError as error:
            hint = "Ask another model, or convert this one again with a current llama.cpp."
            raise RequestError(error.message, param="model", hint=hint) from None
        self._temperatures = facts.config.decision_temperatures
        self._vocab = facts.vocab

    def temperature(self, kind: QuestionKind, count: int) -> float | None:
        """That of the file for so many options; None: it has none."""
        if self.name == "lev":
            size = "small" if count <= 8 else "mid" if count <= 26 else "large"
        else:
            size = "2" if count <= 2 else "3_5" if count <= 5 else "6_10" if count <= 10 else "11"
        for name in (f"{_NAMES[kind]}.{size}", _NAMES[kind]):
            if name in self._temperatures:
                return self._temperatures[name]
        return None

    @cached_property
    def codes(self) -> tuple[tuple[str, int], ...]:
        """Labels that are one token, with it; 255 at most."""
        found = ((code, self._single(code)) for code in self.family.codes)
        return tuple((code, token) for code, token in found if token is not None)[: OPTIONS.most]

    def spellings(self, texts: Iterable[str]) -> tuple[int, ...]:
        """The tokens of those that are one."""
        found = map(self._single, texts)
        return tuple(dict.fromkeys(token for token in found if token is not None))

    def _single(self, text: str) -> int | None:
        tokens = self._vocab.tokenize(text, add_special=False, parse_special=False, param="")
        return tokens[0] if len(tokens) == 1 else None


def native_form(facts: ModelFacts) -> NativeForm | None:
    """None: this model is asked as any other. Raises RequestError; see `NativeForm`."""
    name, source = facts.config.decision_type, facts.config.decision_form
    return NativeForm(facts, name, source) if name and source else None


def native_plan(decision: Decision, facts: ModelFacts, form: NativeForm, budget: Budget) -> Plan:
    """Raises RequestError that names the field; blocks."""
    asked = [_Asked(question, form) for question in decision.questions]
    return _Writer(decision, facts, form, asked, budget).plan()


class _Asked:
    """A question as its family is asked it.

    shown   of each order that it is asked in: places of options among the canonical ones
    labels  of each place in an order: what the template is told, and its tokens
    """

    def __init__(self, question: TypedQuestion, form: NativeForm) -> None:
        self.question, family = question, form.family
        self.kind: QuestionKind
        self.kind, self.options, self.order = canonical(question)
        self._form, count = form, len(self.options)
        places = tuple(range(count))
        if self.kind == "statement" and not family.true_first:
            places = (1, 0)
        self.shown = [places]
        if self.kind == "choice" and family.both_ways and count > 1:
            self.shown.append(places[::-1])
        self.is_rated = self.kind == "statement" and family.is_rated
        self.labels = self._spellings() if family.is_spelled else self._codes()

    def _codes(self) -> list[tuple[str, tuple[int, ...]]]:
        count = _RATINGS if self.is_rated else len(self.options)
        codes = self._form.codes[:count]
        if len(codes) < count:
            raise self._too_many(count)
        return [(code, (token,)) for code, token in codes]

    def _spellings(self) -> list[tuple[str, tuple[int, ...]]]:
        if self.kind == "choice":
            return self._choice_codes()
        form, keys = self._form, self.keys(self.shown[0])
        texts = [(key,) for key in keys] if self.kind == "scale" else _YES_NO
        found = [(key, form.spellings(each)) for key, each in zip(keys, texts, strict=True)]
        if not all(tokens for _, tokens in found):
            raise self._too_many(len(found))
        return found

    def _choice_codes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Options that are letters label themselves; more than 26 have numbers."""
        keys = self.keys(self.shown[0])
        if all(len(key) == 1 and key.isascii() and key.isalpha() for key in keys):
            wanted = keys
        else:
            wanted = [*_LETTERS[: len(keys)]]
            if len(keys) > len(_LETTERS):
                wanted = [f"{number:02d}" for number in range(len(keys))]
        found: list[tuple[str, tuple[int, ...]]] = []
        taken: set[int] = set()
        for code in wanted:
            for label in (code, *self._form.family.codes):
                tokens = self._form.spellings((label,))
                if tokens and tokens[0] not in taken:
                    taken.add(tokens[0])
                    spaced = self._form.spellings((label, f" {label}"))
                    found.append((label, spaced))
                    break
            else:
                raise self._too_many(len(keys))
        return found

    def _too_many(self, count: int) -> RequestError:
        place = self.question.place
        return RequestError(
            f"{place} needs {count} labels, and the model's vocabulary has no token of its own for "
            "each.",
            param=place,
            hint="Ask with fewer options.",
        )

    def keys(self, shown: Sequence[int]) -> list[str]:
        """The options' names, in this order."""
        if self.kind == "scale":
            return [str(place) for place in shown]
        if self.kind == "statement":
            return [("true", "false")[place] for place in shown]
        return [self.options[place].text for place in shown]

    def variables(self, number: int, shown: Sequence[int]) -> dict[str, Any]:
        """What the template is told of it. number: its place in the request"""
        question, is_labelled = self.question, self._form.family.is_labelled
        options: list[dict[str, Any]] = []
        for key, place, label in zip(self.keys(shown), shown, self.labels, strict=False):
            option = {"key": key, "description": _meaning(self.kind, self.options[place])}
            options.append({**option, "label": label[0]} if is_labelled else option)
        said = question.instructions if question.asked is None else question.asked
        return {
            "id": question.name or f"question_{number + 1}",
            "type": _NAMES[self.kind],
            "instructions": said,
            "options": options,
        }

    def plan(self, first: int) -> PlannedQuestion:
        """first: the place of its first suffix among the request's"""
        views: list[OptionsView] = []
        for turn, shown in enumerate(self.shown):
            order, labels = tuple(self.order[place] for place in shown), self.labels
            if self.is_rated:
                order = tuple(range(_RATINGS))
            places, begin = list[tuple[int, ...]](), 0
            for _, tokens in labels:
                places.append(tuple(range(begin, begin + len(tokens))))
                begin += len(tokens)
            views.append(OptionsView(order, first + turn, tuple(places)))
        truth = cast("tuple[int, int]", self.order) if self.is_rated else None
        temperature = self._form.temperature(self.kind, len(self.options))
        native = NativeReading(self._form.name, truth)
        return PlannedQuestion(tuple(views), "letters", temperature, native)


def _meaning(kind: QuestionKind, option: AnswerOption) -> Any:
    if option.meaning is not None:
        return option.meaning
    if kind != "scale":
        return option.description
    return f"{option.text}: {option.description}" if option.description else option.text


class _Writer:
    """Writes the prompts of all questions, and splits what they share from what is each one's."""

    def __init__(
        self,
        decision: Decision,
        facts: ModelFacts,
        form: NativeForm,
        asked: Sequence[_Asked],
        budget: Budget,
    ) -> None:
        self._decision, self._facts, self._form, self._asked = decision, facts, form, asked
        self._budget = budget
        self._tokens = PromptTokens(facts, decision.media, decision.param)

    def plan(self) -> Plan:
        prompts: list[tuple[tuple[int, ...], tuple[Medium, ...]]] = []
        for number, asked in enumerate(self._asked):
            for shown in asked.shown:
                prompts.append(self._prompt(number, shown))
                self._check_length(asked, prompts[-1][0])
        state = self._state_length([tokens for tokens, _ in prompts])
        media = tuple(each for each in prompts[0][1] if each.stop <= state)
        suffixes: list[Suffix] = []
        planned: list[PlannedQuestion] = []
        count = state
        for asked in self._asked:
            question = asked.plan(len(suffixes))
            planned.append(question)
            candidates = tuple(token for _, ids in asked.labels for token in ids)
            for place in range(len(asked.shown)):
                tokens, shown = prompts[len(suffixes)]
                own = len(tokens) - state
                behind = tuple(
                    msgspec.structs.replace(each, start=each.start - state)
                    for each in shown
                    if each.stop > state
                )
                count += 0 if place else own
                suffixes.append(Suffix(tokens[state:], candidates=candidates, media=behind))
        asked_of = tuple(planned)
        request = ScoringRequest(
            id=uuid.uuid4().hex,
            prompt=Prompt(prompts[0][0][:state], checkpoints=(state,), media=media),
            params=GenerationParams(max_tokens=0, prompt_param=self._decision.param),
            suffixes=tuple(suffixes),
            doubtful=lambda scores: near_ties(asked_of, scores),
        )
        return Plan(request, asked_of, count)

    def _check_length(self, asked: _Asked, tokens: tuple[int, ...]) -> None:
        """Raise RequestError that names the longer one, state or question. Each prompt is checked
        before the next, which would hold the state again."""
        if len(tokens) > self._facts.max_length:
            state = self._state_length([tokens])
            is_own = len(tokens) - state > state
            param = asked.question.place if is_own else self._decision.param
            check_length(len(tokens), self._facts.max_length, param)

    def _state_length(self, prompts: Sequence[tuple[int, ...]]) -> int:
        """Tokens that all prompts begin with, those of other questions about this state too; each
        has one more at least."""
        asked = self._asked[0]
        other, _ = self._prompt(0, asked.shown[0], instructions=MARK)
        places = enumerate(zip(*prompts, other, strict=False))
        shortest = min(len(tokens) - 1 for tokens in prompts)
        state = next((place for place, tokens in places if len({*tokens}) > 1), shortest)
        state = min(state, shortest)
        # A medium is read as a whole.
        while state and prompts[0][state - 1] < 0 and prompts[0][state] < 0:
            state -= 1
        return max(state, 1)

    def _prompt(
        self, number: int, shown: Sequence[int], instructions: str | None = None
    ) -> tuple[tuple[int, ...], tuple[Medium, ...]]:
        """One question's, in one order of its options. instructions: in the place of its own"""
        self._budget.check()
        asked = self._asked[number]
        given = asked.variables(number, shown)
        if instructions is not None:
            given["instructions"] = instructions
        given = self._as_given(given) | {"state": self._state}
        if self._form.family.lists_all:
            given["questions"] = self._questions
        given["images"] = [*self._decision.images]
        try:
            text = self._form.template.render([], add_generation_prompt=False, **given)
        except RequestError as error:
            raise RequestError(error.message, param=asked.question.place) from None
        tokens, media = self._tokens.read(text, self._tokens.tokenize)
        if len(tokens) < 2:
            raise RequestError(
                f"The model's {DECISION_TEMPLATE} template writes nothing for this question.",
                param=asked.question.place,
            )
        return tuple(tokens), media

    def _as_given(self, value: Any) -> Any:
        """A value as the template gets it: its texts are text, and members in their order."""
        return self._tokens.as_texts(
            _in_order_of_names(value) if self._form.family.is_sorted else value
        )

    @cached_property
    def _state(self) -> Any:
        return self._as_given(self._document())

    @cached_property
    def _questions(self) -> Any:
        asked = [each.variables(place, each.shown[0]) for place, each in enumerate(self._asked)]
        return self._as_given(asked)

    def _document(self) -> Any:
        """The state as the template is given it: a chat of several messages as such."""
        decision = self._decision
        if decision.document is not None:
            return decision.document
        if len(decision.state) == 1 and not decision.state[0].calls:
            return decision.state[0].content or ""
        return [
            {
                "role": message.role,
                "content": "\n".join(
                    [
                        *filter(None, [message.content]),
                        *(f"[call {call.name}: {call.arguments}]" for call in message.calls),
                    ]
                ),
            }
            for message in decision.state
        ]


def _in_order_of_names(value: Any) -> Any:
    """A JSON value with the members of all its objects in the order of their names."""
    if isinstance(value, list):
        return [_in_order_of_names(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {name: _in_order_of_names(members[name]) for name in sorted(members)}
    return value
