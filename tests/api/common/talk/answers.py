"""Answers of a model with random weights, which a conversation's rules must hold."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from tests.support.models import templates
from worker.api.common.talk.asked import Asked, ask
from worker.api.common.talk.said import Said
from worker.api.common.talk.talk import Talk
from worker.chat.format import ChatFormat
from worker.chat.message import Message, Tool
from worker.chat.template import ChatTemplate
from worker.chat.thinking import Thinking
from worker.engine.engine import Engine
from worker.engine.sampling import SamplingParams
from worker.lifecycle.loaded import Loaded

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"at": {"enum": ["Rome", "Oslo"]}, "deep": {"type": "boolean"}},
    "required": ["at", "deep"],
    "additionalProperties": False,
}
TOOLS = tuple(Tool(name=name, parameters=PARAMETERS) for name in ("sky", "sea"))


def asked_of(loaded: Loaded, family: str, **options: Any) -> Asked:
    chat = ChatFormat(ChatTemplate(templates.text(family), bos="", eos=""), {})
    given: dict[str, Any] = {
        "messages": (Message(role="user", content="x"),),
        "tools": TOOLS,
        "choice": "required",
        "parallel": False,
        "thinking": Thinking(is_on=False),
        "max_tokens": 400,
        "sampling": SamplingParams(seed=1),
        **options,
    }
    return ask(Talk(**given), chat, loaded)


def said(loaded: Loaded, asked: Asked) -> Said:
    """What the model answers."""
    ticks = itertools.count()
    engine = Engine(loaded.backend, lambda: next(ticks) * 1e-4)
    (request,) = asked.generation.requests(loaded.backend.max_length)
    # What the prompt says makes no difference to it; a byte is a token, so it would be long.
    engine.add(msgspec.structs.replace(request, prompt=request.prompt[-8:], checkpoints=()))
    found = asked.said()
    while not engine.is_idle:
        for delta in engine.step():
            found.take(delta)
    return found
