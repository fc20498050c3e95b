"""One prompt, one seed, alone: one text, in fresh engines and in used ones."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.engine.driving import engine_over, request
from tests.support.fakes import FakeBackend
from tests.support.models import ggufs
from tests.support.slots import open_slots, random_tokens
from worker import log
from worker.cache.store import Store
from worker.engine.backend import Kernels
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.llama.backend import LlamaBackend

# In slots of 512 cells: less than a piece of a prompt, several, and longer than a stream.
LENGTHS = (70, 300, 700)
WAYS = {
    "greedy": SamplingParams(temperature=0, ignore_eos=True),
    "drawn": SamplingParams(temperature=1.0, seed=7, ignore_eos=True),
}


@pytest.fixture(params=[0, 32], ids=["fused", "plain"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[list[LlamaBackend]]:
    """Two backends over one model, with either attention."""
    log.configure("console", "error")
    path = tmp_path / "model.gguf"
    ggufs.write_llama(path, embedding=128, heads=4, kv_heads=2, layers=2, context=2048)
    with (
        open_slots(path, plain_rows=request.param) as fresh,
        open_slots(path, plain_rows=request.param) as used,
    ):
        yield [fresh, used]


def said(engine: Engine, prompts: list[list[int]], way: str) -> list[list[object]]:
    """What is said to prompts that come together: tokens and their log-probabilities."""
    found: dict[str, list[object]] = {str(number): [] for number in range(len(prompts))}
    for name, prompt in zip(found, prompts, strict=True):
        params = GenerationParams(max_tokens=8, sampling=WAYS[way], logprobs=1)
        asked = Request(id=name, prompt=Prompt(tuple(prompt)), params=params)
        engine.add(asked)
    while not engine.is_idle:
        for delta in engine.step():
            assert delta.error is None
            for score in delta.logprobs:
                # Weights in F32 round a few rows otherwise than one, in the seventh digit.
                found[delta.id].append((delta.token, round(score.logprob, 4)))
    return list(found.values())


@pytest.mark.parametrize("kept_bytes", [0, 1 << 26])
def test_fresh_and_used(opened: list[LlamaBackend], kept_bytes: int) -> None:
    """The clock runs at another speed in each, and others were there with the same beginning."""
    text = random_tokens(1, 900).tolist()
    # What plain attention read in streams says otherwise in one pool, where attention is fused.
    lengths = LENGTHS if opened[0].context.fused or not kept_bytes else LENGTHS[:2]
    right: dict[tuple[int, str], list[object]] = {}

    def engine_at(backend: LlamaBackend, second: float) -> Engine:
        clock = itertools.count()
        store = Store(kept_bytes, needs_rest=False) if kept_bytes else None
        return Engine(backend, lambda: next(clock) * second, store=store)

    for length, way in itertools.product(lengths, WAYS):
        fresh, _ = opened
        fresh.arrange(unified=True, slots=())
        fresh.arrange(unified=False, slots=())
        right[length, way] = said(engine_at(fresh, 1e-4), [text[:length]], way)[0]
    used = engine_at(opened[1], 0.1)
    for number in range(3):
        for (length, way), wanted in right.items():
            assert said(used, [text[:length]], way) == [wanted], (number, length, way)
            assert said(used, [text[:length]], way) == [wanted], (number, length, way)
        others = [text[: length + 9] for length in (10, 250, 440)]
        for other in others[number:]:
            said(used, [other], "greedy")
        said(used, [[5, *other] for other in others], "drawn")


def test_what_is_known_is_taken_whole() -> None:
    """Alone whole pieces; all where a prompt is short, goes on from all of it, or others run."""
    backend = FakeBackend(num_cells=400, num_slots=4, capacity=16, vocab_size=1_000)
    backend.kernels = Kernels(piece=16, whole=16, tile=30)
    engine = engine_over(backend)
    text = list(range(1, 60))
    read: list[int] = []

    def ask(name: str, prompt: list[int]) -> list[int]:
        before, tokens = backend.rows_computed, list[int]()
        engine.add(request(name, prompt, max_tokens=3))
        while engine.status_of(name) is not None:
            tokens += [d.token for d in engine.step() if d.id == name and d.token is not None]
        read.append(backend.rows_computed - before - (len(tokens) - 1))
        return tokens

    answer = ask("first", text[:40])
    ask("again", text[:40])
    ask("branch", [*text[:35], 999, 998])
    ask("short", [*text[:20], 997, 996])
    ask("goes on", [*text[:40], *answer, 7, 8])
    assert read == [40, 40 - 32, 37 - 32, 22 - 20, 3]
    engine.add(request("beside", [500] * 10, max_tokens=100))
    engine.step()
    before = engine.snapshot.stats.shared_tokens
    engine.add(request("not alone", text[:30], max_tokens=1))
    engine.step()
    assert engine.snapshot.stats.shared_tokens - before == 29
