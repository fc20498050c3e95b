"""POST /v1/decisions and POST /v1/systemone: typed questions about a state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import msgspec
from litestar import post
from litestar.types import ASGIApp

from worker.api.decisions import openai, systemone
from worker.api.decisions.asking import Asking
from worker.api.decisions.exchange import DecisionExchange
from worker.api.decisions.openai_schemas import DecisionReply, DecisionRequest
from worker.api.decisions.question import AnswerReading, Decision
from worker.api.decisions.reading import Plan
from worker.api.decisions.request_body import DecisionBody, read_decision
from worker.api.decisions.systemone import UnprocessableError
from worker.api.decisions.systemone_schemas import (
    SystemOneErrorReply,
    SystemOneReply,
    SystemOneRequest,
)
from worker.api.described import JSON, Api, Described
from worker.api.intake.adapters import choice_of
from worker.api.intake.body import HttpRequest
from worker.api.intake.facts import ChosenAdapters, ModelFacts
from worker.api.intake.media_inputs import MediaInputs
from worker.api.intake.origins import Asker
from worker.api.intake.preparing import Preparing
from worker.api.intake.priority import priority_of
from worker.budget import Budget
from worker.http.replies import WholeAnswer, send_whole
from worker.requests.record import note

_UNPROCESSABLE = UnprocessableError.http_status
# Of a body that is made ready as soon as a chat; larger ones wait for each other.
_FEW_BYTES = 1 << 14


class _Prepared(msgspec.Struct, frozen=True):
    """model: the name that the answer gives it"""

    asked: DecisionRequest | SystemOneRequest
    decision: Decision
    plan: Plan
    model: str = ""

    def with_adapters(self, choice: ChosenAdapters) -> Self:
        """The same, computed with the adapters that were chosen."""
        plan = self.plan.with_adapters(choice)
        return msgspec.structs.replace(self, plan=plan, model=choice.model)

    def reply(self, readings: Sequence[AnswerReading]) -> DecisionReply | SystemOneReply:
        num_tokens = self.plan.num_tokens
        if isinstance(self.asked, DecisionRequest):
            return openai.reply_of(self.decision, readings, self.model, num_tokens)
        return systemone.reply_of(self.asked, self.decision, readings, self.model, num_tokens)


@post("/v1/decisions", status_code=200, summary="Answers with probabilities (OpenAI)")
async def decisions(
    request: HttpRequest,
    facts: ModelFacts,
    asking: Asking,
    preparing: Preparing,
) -> ASGIApp:
    """One for each question. A body with `state` is answered as `/v1/systemone` does."""
    return await _decide(request, facts, asking, preparing, DecisionRequest)


@post("/v1/systemone", status_code=200, summary="Answers with probabilities (TypeSafe)")
async def system_one(
    request: HttpRequest,
    facts: ModelFacts,
    asking: Asking,
    preparing: Preparing,
) -> ASGIApp:
    """One for each question, by its id."""
    return await _decide(request, facts, asking, preparing, SystemOneRequest)


async def _decide(
    request: HttpRequest,
    facts: ModelFacts,
    asking: Asking,
    preparing: Preparing,
    shape: type[DecisionRequest | SystemOneRequest],
) -> ASGIApp:
    content_type = request.headers.get("content-type", "")
    decode = partial(read_decision, content_type=content_type, shape=shape)
    try:
        body = await preparing.body_by(request, shape, decode)
        choice, priority = choice_of(body.asked, facts.adapters), priority_of(body.asked, request)
        made = await preparing.make(request, body.asked, partial(_prepare, body, facts, asking))
        made = made.with_adapters(choice)
        with body.errors():
            facts.adapters.check_key(made.plan.request.prompt.key)
            plan = made.plan.with_priority(priority)
            return DecisionExchange(plan, preparing, request.url.path, made.reply)
    except UnprocessableError as error:
        return _refusal(error)


def _prepare(body: DecisionBody, facts: ModelFacts, asking: Asking, budget: Budget) -> _Prepared:
    if len(body.data) > _FEW_BYTES:
        budget.make_way("questions")
    decision = body.decision(MediaInputs(facts.media, budget))
    with body.errors():
        return _Prepared(body.asked, decision, asking.plan(decision, facts, budget))


def _refusal(error: UnprocessableError) -> ASGIApp:
    note(error)
    body = msgspec.json.encode(error.reply)
    fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    answer = WholeAnswer(error.http_status, fields, body)

    async def refuse(_scope: Any, _receive: Any, send: Any) -> None:
        await send_whole(send, answer)

    return refuse


_NOTE = "Once again the lift is stuck, since noon."
_LIFTS = {"value": "lifts", "description": "doors, cabins"}
_TEXTS: dict[str, Any] = {
    "input": _NOTE,
    "questions": [
        {"type": "predicate", "name": "broken", "instructions": "Something is out of order."},
        {
            "type": "choice",
            "instructions": "Who repairs it?",
            "choices": [_LIFTS, {"value": False}],
        },
        {
            "type": "score",
            "instructions": "How urgent is it?",
            "levels": [{"label": "can wait"}, {"label": "today"}, {"label": "now"}],
        },
    ],
}
_STATE: dict[str, Any] = {
    "state": {"note": _NOTE},
    "questions": {
        "broken": {"type": "noul", "instructions": "Something is out of order."},
        "who": {"type": "choice", "criteria": {"lifts": "doors, cabins", "nobody": None}},
        "urgent": {"type": "score", "criteria": ["can wait", "today", "now"]},
    },
}

API = Api(
    name="Decisions",
    text="Typed questions about a state, answered with probabilities instead of text.",
    routes=(
        Described(
            handler=decisions,
            asker=Asker.NAMED,
            takes=DecisionRequest,
            needs=("input", "questions"),
            gives={JSON: DecisionReply},
            examples={"all types": _TEXTS},
        ),
        Described(
            handler=system_one,
            asker=Asker.NAMED,
            takes=SystemOneRequest,
            needs=("state", "questions"),
            gives={JSON: SystemOneReply},
            also={_UNPROCESSABLE: SystemOneErrorReply},
            examples={"all types": _STATE},
            notes="A wrong body is status 422.",
        ),
    ),
)
