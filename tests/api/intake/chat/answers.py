"""Answers of a model with random weights, which a conversation's rules must hold."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import msgspec

from tests.support.models import templates
from worker.api.answer.answer_state import AnswerState
from worker.api.intake.chat.asking import ask
from worker.api.intake.chat.chat_input import ChatInput
from worker.api.intake.facts import ModelFacts
from worker.api.intake.generation import Generation
from worker.chat.format import ChatFormat
from worker.chat.message import Message, Tool
from worker.chat.template import ChatTemplate
from worker.chat.thinking import Thinking
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt
from worker.engine.sampling import SamplingParams
from worker.llama.backend import LlamaBackend

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"at": {"enum": ["Rome", "Oslo"]}, "deep": {"type": "boolean"}},
    "required": ["at", "deep"],
    "additionalProperties": False,
}
TOOLS = tuple(Tool(name=name, parameters=PARAMETERS) for name in ("sky", "sea"))


class Model(NamedTuple):
    """What computes, and what requests are made ready with."""

    backend: LlamaBackend
    facts: ModelFacts


def asked_of(model: Model, family: str, **options: Any) -> Generation:
    chat = ChatFormat(ChatTemplate(templates.text(family), bos="", eos=""), {})
    given: dict[str, Any] = {
        "messages": (Message(role="user", content="x"),),
        "tools": TOOLS,
        "choice": "required",
        "parallel": False,
        "thinking": Thinking(is_on=False),
        **options,
    }
    of_params = GenerationParams.__struct_fields__
    params = {name: given.pop(name) for name in tuple(given) if name in of_params}
    wanted: dict[str, Any] = {"max_tokens": 400, "sampling": SamplingParams(seed=1), **params}
    return ask(ChatInput(**given, params=GenerationParams(**wanted)), chat, model.facts)


def said(model: Model, asked: Generation) -> AnswerState:
    """What the model answers."""
    ticks = itertools.count()
    engine = Engine(model.backend, lambda: next(ticks) * 1e-4)
    (request,) = asked.requests()
    # What the prompt says makes no difference to it; a byte is a token, so it would be long.
    engine.add(msgspec.structs.replace(request, prompt=Prompt(request.prompt.tokens[-8:])))
    found = AnswerState(asked.reader())
    while not engine.is_idle:
        for delta in engine.step():
            found.take(delta)
    return found
