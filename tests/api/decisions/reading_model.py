"""The demo model, with what reads questions."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from worker.api.decisions.question import Decision, Kind, Option, Question, Reading
from worker.api.decisions.reading import Plan, plan_of
from worker.api.intake.facts import ModelFacts
from worker.budget import UNBOUNDED
from worker.chat.format import ChatFormat
from worker.chat.message import Message
from worker.engine.engine import Engine
from worker.engine.scoring import Scored
from worker.llama.backend import LlamaBackend
from worker.settings import Settings

TRUTH = (Option(True, "true"), Option(False, "false"))


class ReadingModel(NamedTuple):
    backend: LlamaBackend
    facts: ModelFacts
    chat: ChatFormat
    engine: Engine

    def plan(
        self,
        *questions: Question,
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

    def read(self, *questions: Question, **given: Any) -> list[Reading]:
        plan = self.plan(*questions, **given)
        return plan.readings(self.scored(plan).scores)


def asks(kind: Kind, text: str, *options: str | Option) -> Question:
    """A question; options without a description are texts."""
    given = tuple(o if isinstance(o, Option) else Option(o, o) for o in options)
    return Question(kind, "questions[0]", text, given or TRUTH)
