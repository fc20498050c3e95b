"""The demo model, with what reads questions."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from worker.api.decisions.question import (
    AnswerOption,
    AnswerReading,
    Decision,
    QuestionKind,
    TypedQuestion,
)
from worker.api.decisions.reading import Plan, plan_of
from worker.api.intake.facts import ModelFacts
from worker.budget import UNBOUNDED
from worker.chat.format import ChatFormat
from worker.chat.message import Message
from worker.engine.engine import Engine
from worker.engine.scoring import Scored
from worker.llama.backend import LlamaBackend
from worker.settings import Settings

TRUTH = (AnswerOption(True, "true"), AnswerOption(False, "false"))


class ReadingModel(NamedTuple):
    backend: LlamaBackend
    facts: ModelFacts
    chat: ChatFormat
    engine: Engine

    def plan(
        self,
        *questions: TypedQuestion,
        state: str = "A dog barks.",
        plain: bool = False,
        **settings: Any,
    ) -> Plan:
        """What is asked of the engine."""
        facts = msgspec.structs.replace(self.facts, settings=Settings(**settings))
        decision = Decision((Message(role="user", content=state),), questions)
        return plan_of(decision, facts, None if plain else self.chat, UNBOUNDED)

    def scored(self, plan: Plan) -> Scored:
        """What the engine says, stepped until it has nothing to do."""
        self.engine.check(plan.request)
        self.engine.add(plan.request)
        found: Scored | None = None
        while not self.engine.is_idle:
            for delta in self.engine.step():
                if isinstance(delta, Scored) and delta.id == plan.request.id:
                    found = delta
        assert found is not None
        if found.error is not None:
            raise found.error
        return found

    def read(self, *questions: TypedQuestion, **given: Any) -> list[AnswerReading]:
        plan = self.plan(*questions, **given)
        return plan.readings(self.scored(plan).scores)


def asks(kind: QuestionKind, text: str, *options: str | AnswerOption) -> TypedQuestion:
    """A question; options without a description are texts."""
    given = tuple(o if isinstance(o, AnswerOption) else AnswerOption(o, o) for o in options)
    return TypedQuestion(kind, "questions[0]", text, given or TRUTH)
