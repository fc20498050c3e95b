"""Requests through the engine, each compared with what it gets alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence as Ordered
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.models.architectures import VOCABULARY
from worker.cache.store import Store
from worker.engine.drafts.guesser import Drafting
from worker.engine.engine import Engine
from worker.engine.plan import StepPlan
from worker.engine.request import GenerationParams, Prompt, Request, SamplingParams
from worker.engine.sequence import Delta, Sequence
from worker.lifecycle.buffers import text_purpose
from worker.llama.backend import LlamaBackend
from worker.llama.companion import (
    Assistant,
    DraftModel,
    Heads,
    LayerReader,
    StateReader,
    open_layer_reader,
)
from worker.llama.context import ContextOptions
from worker.llama.library import native
from worker.llama.weights import LoadOptions
from worker.machine import Memory
from worker.memory.plan import estimate
from worker.model.config import ModelConfig, load_config
from worker.model.drafts import load_draft_config, reads_cells, reads_states, states_read
from worker.settings import Settings

Tokens = tuple[int, ...]
EXACT: dict[str, Any] = {"cache_type_k": "f32", "cache_type_v": "f32", "flash_attn": "off"}
COUNT = 12  # tokens that a request asks for


def prompt_of(seed: int, length: int) -> Tokens:
    """Tokens that are nobody's beginning but their own."""
    draw = random.Random(seed)
    return tuple(draw.randrange(3, VOCABULARY) for _ in range(length))


PREFIX = prompt_of(0, 48)  # with which several requests begin


def load(
    path: Path,
    *,
    unified: bool = False,
    heads: bool = False,
    draft: ModelConfig | None = None,
    **options: int,
) -> LlamaBackend:
    """A backend whose logits hardly depend on who else is in the batch: by 1e-4 at most.

    With flash attention they differ by 1e-2, with a cache of f16 by 1e-3, and near-ties flip.

    draft: a drafter to which it gives hidden states
    """
    sizes: dict[str, Any] = {k: options[k] for k in ("batch_size", "ubatch_size") if k in options}
    named = None if draft is None else draft.path
    asked = Settings(draft="both" if heads else "auto", draft_model=named, **sizes)
    kept = estimate(load_config(path), asked, Memory(total=1 << 40, available=1 << 40)).states_kept
    given: dict[str, Any] = {"num_cells": 1024, "num_slots": 4, "states_kept": kept, **options}
    return LlamaBackend.open(
        path,
        LoadOptions(n_gpu_layers=0, devices=(), heads=heads),
        ContextOptions(
            **given,
            unified=unified,
            purpose=text_purpose(draft, heads=heads),
            layers_read=states_read(draft),
            **EXACT,
        ),
    )


def open_assistant(draft: ModelConfig, backend: LlamaBackend) -> Assistant:
    """An assistant beside a backend that was loaded for it."""
    return Assistant(draft, LoadOptions(n_gpu_layers=0, devices=()), backend)


def open_reader(draft: ModelConfig, backend: LlamaBackend) -> LayerReader:
    """A drafter beside a backend that was loaded for it."""
    options = ContextOptions(
        num_cells=backend.shape.num_cells,
        num_slots=backend.shape.num_slots,
        batch_size=backend.batch.capacity,
        **EXACT,
    )
    return open_layer_reader(draft, LoadOptions(n_gpu_layers=0, devices=()), options, backend)


class Truth:
    """What follows a prompt when nobody else is there."""

    def __init__(self, path: Path) -> None:
        self.backend = load(path, unified=True, states_kept=0)
        self._known: dict[tuple[Tokens, int], Tokens] = {}

    def __call__(self, prompt: Tokens, count: int = COUNT) -> Tokens:
        if (prompt, count) not in self._known:
            self._known[prompt, count] = self._compute(prompt, count)
        return self._known[prompt, count]

    def _compute(self, prompt: Tokens, count: int) -> Tokens:
        backend, batch = self.backend, self.backend.batch
        backend.context.clear()
        tokens, done = list(prompt), 0
        while len(tokens) - len(prompt) < count:
            while done < len(tokens):
                batch.clear()
                batch.add(np.array(tokens[done : done + batch.capacity], np.int32), done, 0)
                batch.outputs[batch.size - 1] = 1
                backend.decode()
                done += batch.size
            logits = backend.logits(batch.size - 1).copy()
            logits[list(backend.end_tokens)] = -np.inf
            tokens.append(int(logits.argmax()))
        return tuple(tokens[len(prompt) :])


class Session:
    """An engine over a fresh backend whose books are compared with llama.cpp's after each step."""

    def __init__(
        self,
        path: Path,
        truth: Truth,
        *,
        drafting: bool = False,
        draft: Path | None = None,
        heads: bool = False,
        kept_bytes: int = 1 << 26,
        unified: bool = False,
        **options: int,
    ) -> None:
        drafts = None if draft is None else load_draft_config(draft, load_config(path))
        reads = drafts is not None and reads_states(drafts)
        self.backend = load(
            path, unified=unified, heads=heads, draft=drafts if reads else None, **options
        )
        self.heads: StateReader | None = Heads(self.backend) if heads else None
        self.draft_model: DraftModel | None = None
        self.assistant: Assistant | None = None
        if drafts is not None and reads_cells(drafts):
            self.assistant = open_assistant(drafts, self.backend)
        elif drafts is not None and reads:
            self.heads = open_reader(drafts, self.backend)
        elif draft is not None:
            self.draft_model = DraftModel(
                draft,
                LoadOptions(n_gpu_layers=0, devices=()),
                ContextOptions(num_cells=512, num_slots=4),
            )
        self.truth = truth
        self.store: Store | None = None
        if kept_bytes and self.backend.state_form is not None:
            self.store = Store(kept_bytes, needs_rest=self.backend.shape.needs_rest)
        ticks, decode, self._decodes = itertools.count(), self.backend.decode, 0

        def counted_decode() -> None:
            self._decodes += 1
            decode()

        self.backend.decode = counted_decode
        # Whatever is measured takes next to no time; guesses even less, so that they are made.
        tick = 1e-4 if self.heads is self.assistant is None else 1e-6
        self.engine = Engine(
            self.backend,
            lambda: self._decodes * 1e-4 + next(ticks) * tick,
            store=self.store,
            drafting=Drafting(
                drafting, model=self.draft_model, heads=self.heads, assistant=self.assistant
            ),
        )
        self.requests: dict[str, Request] = {}
        self.tokens: dict[str, list[int]] = {}
        self.last: dict[str, Delta] = {}
        self.num_put_back = 0
        self.num_evicted = 0
        cells, scheduler = self.engine.scheduler.cells, self.engine.scheduler
        evict, put_back = cells.evict, scheduler.put_back

        def counted_evict() -> None:
            self.num_evicted += 1
            evict()

        def counted_put_back(sequence: Sequence) -> None:
            self.num_put_back += 1
            put_back(sequence)

        cells.evict, scheduler.put_back = counted_evict, counted_put_back

    @property
    def accepted(self) -> int:
        """Draft tokens that were right, of all requests."""
        return sum(delta.accepted_tokens for delta in self.last.values())

    def run_common_beginnings(self) -> None:
        """Five requests that begin alike, of which one is aborted, and one alone."""
        for i in range(5):
            self.add(f"r{i}", PREFIX[: 12 * i] + prompt_of(140 + i, 30), 40)
            self.step(2)
        self.abort("r1")
        self.run()
        self.run_alone(PREFIX + prompt_of(145, 30))

    def run_alone(self, prompt: Tokens) -> None:
        """One request without others: a hybrid guesses only then."""
        self.add(f"alone{len(self.requests)}", prompt, 60)
        self.run()

    def close(self) -> None:
        """Free the models."""
        for each in (self.heads, self.assistant, self.backend, self.draft_model):
            if each is not None:
                each.close()

    def add(self, name: str, prompt: Tokens, count: int = COUNT, *, priority: int = 0) -> None:
        """Queue a greedy request."""
        sampling = SamplingParams(temperature=0, ignore_eos=True)
        request = Request(
            id=name,
            prompt=Prompt(prompt),
            params=GenerationParams(max_tokens=count, sampling=sampling),
            priority=priority,
        )
        self.requests[name] = request
        self.tokens[name] = []
        self.engine.check(request)
        self.engine.add(request)

    def abort(self, name: str) -> None:
        """Forget a request; what it got so far must still be the truth."""
        self.engine.abort(name)
        self.check_tokens(name)
        del self.requests[name]

    def step(self, count: int = 1) -> None:
        """Step and compare the books with the cache."""
        for _ in range(count):
            for delta in self.engine.step():
                assert delta.error is None
                if delta.token is not None:
                    self.tokens[delta.id].append(delta.token)
                if delta.is_last:
                    self.last[delta.id] = delta
            self.engine.scheduler.check_integrity()
            if self.store is not None:
                self.store.check_integrity()
            self.check_cache()

    def run(self, *names: str) -> None:
        """Step until idle; the requests `names` (default: all) must have ended with the truth."""
        for _ in range(2_000):
            if self.engine.is_idle:
                break
            self.step()
        assert self.engine.is_idle
        for name in names or self.requests:
            assert self.last[name].finish_reason == "length"
            self.check_tokens(name)

    def count_changes(self) -> list[bool]:
        """A list that gets an entry with each change of the layout: whether it is unified then."""
        changes: list[bool] = []
        arrange = self.backend.arrange

        def counted(*, unified: bool, slots: Ordered[int]) -> set[int]:
            changes.append(unified)
            return arrange(unified=unified, slots=slots)

        self.backend.arrange = counted
        return changes

    def count_padding(self) -> list[int]:
        """A list that gets an entry with each step: how many of its rows nobody reads."""
        added: list[int] = []
        schedule = self.engine.scheduler.schedule

        def counted(now: float) -> StepPlan:
            plan = schedule(now)
            added.append(len(plan.padding))
            return plan

        self.engine.scheduler.schedule = counted
        return added

    def check_tokens(self, name: str) -> None:
        """A request's tokens are those that it gets alone, all of them if it has ended."""
        request, got = self.requests[name], tuple(self.tokens[name])
        assert request.params.max_tokens is not None
        expected = self.truth(request.prompt.tokens, request.params.max_tokens)
        assert got == (expected if name in self.last else expected[: len(got)]), name

    def check_cache(self) -> None:
        """llama.cpp holds of each slot what our books say."""
        for slot in self.engine.scheduler.cells.slots:
            first, last = self.backend.context.span(slot.index)
            assert last == slot.length - 1, f"slot {slot.index}: {last} != {slot.length} - 1"
            if slot.length and self.backend.shape.cuts_tails:
                # Behind a sliding window positions may be gone, inside it none may.
                window = native.llama_model_n_swa(self.backend.weights.handle) or slot.length
                assert first <= max(0, slot.length - window + 1)

    def cached(self, name: str) -> int:
        """How many tokens of an ended request's prompt were reused."""
        return self.last[name].cached_tokens

    def reply(self, name: str) -> Tokens:
        """A request's prompt and all that it got: how the next turn of a conversation begins."""
        return self.requests[name].prompt.tokens + tuple(self.tokens[name])


def soak(session: Session, seed: int, requests: int, reach: int = 120) -> None:
    """Random prompts, conversations, common beginnings of up to `reach` tokens, and aborts."""
    draw = random.Random(seed)
    for i in range(requests):
        ended = [name for name in session.requests if name in session.last]
        choice = draw.random()
        if ended and choice < 0.3:
            prompt = session.reply(draw.choice(ended))
        elif session.requests and choice < 0.6:
            prompt = session.requests[draw.choice(list(session.requests))].prompt.tokens
            prompt = prompt[: draw.randint(1, len(prompt))]
        else:
            prompt = ()
        prompt = (
            *prompt[:reach],
            *(draw.randrange(3, VOCABULARY) for _ in range(draw.randint(1, reach // 3))),
        )
        session.add(f"r{i}", prompt, draw.randint(1, 30))
        session.step(draw.randint(0, 12))
        alive = [name for name in session.requests if name not in session.last]
        if alive and draw.random() < 0.2:
            session.abort(draw.choice(alive))
    session.run()
