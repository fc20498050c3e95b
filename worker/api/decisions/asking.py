"""How a model is asked."""

from __future__ import annotations

import msgspec

from worker.api.decisions.native import NativeForm, native_form, native_plan
from worker.api.decisions.question import Decision
from worker.api.decisions.reading import Plan, plan_of
from worker.api.intake.chat.templates import format_of, has_template
from worker.api.intake.facts import ModelFacts
from worker.budget import Budget
from worker.chat.format import ChatFormat
from worker.errors import RequestError


class Asking(msgspec.Struct, frozen=True):
    """In the form that its file has for decisions, else as a chat, else by a plain text.

    flaw  why its template cannot be used, so that nothing is asked
    """

    chat: ChatFormat | None = None
    native: NativeForm | None = None
    flaw: RequestError | None = None

    def plan(self, decision: Decision, facts: ModelFacts, budget: Budget) -> Plan:
        """Raises RequestError that names the field; blocks."""
        if self.flaw is not None:
            raise RequestError(self.flaw.message, param="model", hint=self.flaw.hint)
        if self.native is not None:
            return native_plan(decision, facts, self.native, budget)
        return plan_of(decision, facts, self.chat, budget)


def asking_of(facts: ModelFacts) -> Asking:
    """Made once: a template is compiled, or cannot be."""
    try:
        if (native := native_form(facts)) is not None:
            return Asking(native=native)
        return Asking(format_of(facts) if has_template(facts) else None)
    except RequestError as error:
        return Asking(flaw=error)
