"""Streams of the demo model, undisturbed, and again while others take their slot."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from tests.support.slots import open_slots
from worker import log
from worker.cache.store import Store
from worker.demo import MODEL_PATH
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.llama.backend import LlamaBackend

_LENGTH = 40


def _asked(name: str, number: int, priority: int, count: int) -> Request:
    draw = random.Random(f"{name} {number}")
    tokens = tuple(draw.randrange(3, 2_000) for _ in range(draw.randrange(4, 200)))
    sampling = SamplingParams(temperature=number % 2, seed=number, ignore_eos=True)
    params = GenerationParams(max_tokens=count, sampling=sampling)
    return Request(id=name, prompt=Prompt(tokens), params=params, priority=priority)


def _engine(backend: LlamaBackend) -> Engine:
    store = Store(1 << 28, needs_rest=backend.shape.needs_rest)
    return Engine(backend, time.monotonic, store=store, max_running=1)


def _written(engine: Engine, number: int, moments: Sequence[int]) -> list[int]:
    """What the stream says; at these steps another one takes its slot."""
    tokens, step = list[int](), 0
    engine.add(_asked(f"low{number}", number, 5, _LENGTH))
    while not engine.is_idle:
        step += 1
        if step in moments:
            engine.add(_asked(f"high{number}-{step}", number + step, 0, 5))
        for delta in engine.step():
            assert delta.error is None
            if delta.id == f"low{number}" and delta.token is not None:
                tokens.append(delta.token)
    return tokens


def run_disturbed(count: int, slots: int) -> tuple[int, int]:
    """How many of so many streams say the same, and how often one made way.

    slots: of the backend, of which one runs at once
    """
    log.configure("console", "error")
    equal, draw = 0, random.Random(1)
    with (
        open_slots(MODEL_PATH, num_slots=slots) as first,
        open_slots(MODEL_PATH, num_slots=slots) as second,
    ):
        alone, disturbed = _engine(first), _engine(second)
        for number in range(count):
            moments = sorted(draw.sample(range(1, 30), draw.randrange(2, 5)))
            wanted = _written(alone, number, ())
            found = _written(disturbed, number, moments)
            equal += wanted == found
    return equal, disturbed.snapshot.num_preempted
