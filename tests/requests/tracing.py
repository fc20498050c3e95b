"""An engine over a fake backend whose tokens are characters, and why it read a prompt again."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tests.support.fakes import FakeBackend
from worker.account import NOBODY
from worker.cache.store import Store
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sequence import Delta
from worker.requests.prompts import ChatParts, RecentPrompts, Turn
from worker.requests.trace import CacheTrace
from worker.requests.tracer import PromptTracer

SPELLED = [bytes([code]) for code in range(127)]
SYSTEM = "You are a careful helper who answers in one sentence and never guesses at anything."
Messages = list[tuple[str, str]]


def render(messages: Messages, preamble: str = "", *, opens: bool = True) -> str:
    """A template: each message in a line of its own."""
    lines = [f"<{role}>{said}\n" for role, said in messages]
    return preamble + "".join(lines) + ("<assistant>" if opens else "")


class Worker:
    """Answers prompts, one after the other unless they are begun by `start`.

    answer  what was sampled last, as the prompt would spell it
    """

    def __init__(
        self, store_bytes: int = 1 << 22, *, store: Store | None = None, max_stall: float = 9e9,
        **kind: Any,
    ) -> None:  # fmt: skip
        limits: dict[str, Any] = {"num_cells": 8_192, "capacity": 512, "vocab_size": 127, **kind}
        self.backend = FakeBackend(**limits)
        if store is None and store_bytes:
            store = Store(store_bytes, needs_rest=self.backend.shape.needs_rest)
        self.store = store
        self.engine = Engine(
            self.backend, lambda: self.backend.now, store=store, max_stall=max_stall
        )
        self.recent = RecentPrompts()
        self.answer = ""
        self._tracers: dict[str, PromptTracer] = {}
        self._lengths: dict[str, int] = {}
        self._names = map(str, itertools.count())
        self.backend.now = 1.0

    def start(
        self,
        text: str | tuple[int, ...],
        *,
        parts: ChatParts | None = None,
        owner: str = "",
        key: bytes = b"",
        count: int = 4,
        **params: Any,
    ) -> str:
        """Queue a prompt; its name."""
        tokens = tuple(text.encode()) if isinstance(text, str) else text
        name = next(self._names)
        asked = Request(
            id=name,
            prompt=Prompt(tokens, key=key),
            params=GenerationParams(max_tokens=count, **params),
            account=NOBODY,
        )
        self._tracers[name] = PromptTracer(self.recent, owner, [asked], 1, parts, SPELLED)
        self._lengths[name] = len(tokens)
        self.engine.add(asked)
        return name

    def step(self) -> list[Delta]:
        """One step; what ended is traced."""
        deltas = self.engine.step()
        for delta in deltas:
            if delta.is_last:
                assert delta.reuse is not None
                ids: list[int] = delta.reuse.tokens[self._lengths[delta.id] :].tolist()
                self.answer = bytes(ids).decode()
                self._tracers[delta.id].end(delta)
        return deltas

    def finish(self, name: str) -> CacheTrace:
        """Step until all have ended; the trace of one."""
        while not self.engine.is_idle:
            self.step()
        trace = self._tracers[name].trace
        assert trace is not None
        return trace

    def ask(self, text: str | tuple[int, ...], **more: Any) -> CacheTrace:
        """A prompt alone, to its end."""
        return self.finish(self.start(text, **more))

    def chat(
        self, messages: Messages, shown: str | None = None, *, given: int = 0,
        thoughts: dict[int, str] | None = None, **more: Any,
    ) -> CacheTrace:  # fmt: skip
        """A conversation. shown: as the template renders it, if not as `render`"""
        text = render(messages) if shown is None else shown
        turns = tuple(
            Turn(role, hash((role, said, (thoughts or {}).get(place, ""))), said,
                 (thoughts or {}).get(place, ""))
            for place, (role, said) in enumerate(messages)
        )  # fmt: skip
        return self.ask(text, parts=ChatParts(turns, given, text), **more)

    def forget_cells(self) -> None:
        """Others take all cells."""
        self.engine.scheduler.cells.rearrange(())
        for slot in range(self.backend.num_slots):
            self.backend.drop(slot)


def long(seed: int, count: int = 400) -> str:
    """A text that begins like no other."""
    draw = np.random.default_rng(seed)
    return "".join(chr(97 + each) for each in draw.integers(0, 26, count))
