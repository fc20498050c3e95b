"""One prompt, one seed, alone: one text, in fresh engines and in used ones."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from pathlib import Path
from typing import Any

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


WIDE = Kernels(piece=128, wide=64, whole=16, tile=64)
TEXT = list(range(1, 400))
OTHER = list(range(900, 700, -1))


class Asked:
    """An engine that answers one prompt after the other; `read`: rows of prompts, by step."""

    def __init__(self) -> None:
        self.backend = FakeBackend(num_cells=4_000, num_slots=4, capacity=512, vocab_size=1_000)
        self.backend.kernels = WIDE
        self.engine = engine_over(self.backend)
        self.read: list[int] = []

    def ask(
        self, prompt: list[int], count: int = 1, logprobs: int | None = None, **sampling: Any
    ) -> list[int]:
        """What is written behind a prompt, greedily unless `sampling` says otherwise."""
        before, written = len(self.backend.batch_sizes), list[int]()
        given: dict[str, Any] = {"temperature": 0, **sampling}
        chosen = SamplingParams(**given)
        self.engine.add(request("a", prompt, count, logprobs=logprobs, sampling=chosen))
        while self.engine.status_of("a") is not None:
            written += [each.token for each in self.engine.step() if each.token is not None]
        sizes = self.backend.batch_sizes[before:]
        self.read = sizes[: len(sizes) - (len(written) - 1)]
        return written


@pytest.mark.parametrize(
    ("length", "steps"),
    [(63, [63]), (128, [128]), (129, [64, 65]), (160, [96, 64]), (191, [112, 79]),
     (192, [128, 64]), (300, [128, 96, 76]), (385, [128, 128, 64, 65])],
)  # fmt: skip
def test_all_steps_of_a_prompt_are_wide(length: int, steps: list[int]) -> None:
    """The last one too, and all others end at whole blocks."""
    asked = Asked()
    asked.ask(TEXT[:length])
    assert asked.read == steps


@pytest.mark.parametrize(
    ("prompt", "read"),
    [
        (TEXT[:300], []),  # again: what the model says behind it is known
        ([*TEXT[:299], 7], [76]),  # as much as a wide step needs
        ([*TEXT[:290], *OTHER[:110]], [112]),
        ([*TEXT[:250], *OTHER[:20]], [78]),
        ([*TEXT[:40], *OTHER[:200]], [128, 80]),
        ([*TEXT[:40], *OTHER[:20]], [20]),  # so few are computed like single ones
    ],
)
def test_what_is_known_is_gone_on_with_in_wide_steps(prompt: list[int], read: list[int]) -> None:
    """Alone, from a whole block, so that what is read is computed as if nothing was known."""
    asked = Asked()
    asked.ask(TEXT[:300])
    asked.ask(prompt)
    assert asked.read == read


def test_copies_of_a_prompt_that_is_known() -> None:
    """The slot of the one that read it is found, not that of a copy."""
    asked = Asked()

    def read() -> int:
        for name in "abc":
            asked.engine.add(request(name, TEXT[:300], max_tokens=1))
        while not asked.engine.is_idle:
            asked.engine.step()
        return asked.backend.rows_computed

    assert read() == read()


def test_only_what_wide_steps_read_is_kept_as_a_whole() -> None:
    """Beside others a prompt goes on from all that is known, by another kernel."""
    asked = Asked()
    asked.ask(TEXT[:300])
    asked.engine.add(request("beside", [500] * 10, max_tokens=9))
    asked.engine.step()
    asked.engine.add(request("not alone", TEXT[:310], max_tokens=1))
    while not asked.engine.is_idle:
        asked.engine.step()
    asked.ask(TEXT[:310])
    assert asked.read == [70]
    asked.ask(TEXT[:310])
    assert not asked.read


@pytest.mark.parametrize(
    ("sampling", "read"), [({}, 1), ({"seed": 7}, 76), ({"top_k": 1}, 76), ({"logprobs": 1}, 76)]
)
def test_what_nobody_can_tell_goes_on_from_all(sampling: dict[str, Any], read: int) -> None:
    """Drawn without a seed, a text differs in any case."""
    asked = Asked()
    asked.ask(TEXT[:300], temperature=1.0)
    asked.ask([*TEXT[:299], 7], temperature=1.0, **sampling)
    assert asked.read == [read]


def test_what_was_written_is_known_too() -> None:
    """All of it, where it goes on or is long; else the prompt before it."""
    asked = Asked()
    written = asked.ask(TEXT[:300], 201)
    asked.ask([*TEXT[:300], *written[:190], *OTHER[:100]])
    assert asked.read == [100]
    asked.ask([*TEXT[:300], *written[:190], *OTHER[:100], 7])
    assert asked.read == [1]
    asked.ask([*TEXT[:300], *written[:20], *OTHER[100:200]])
    assert asked.read == [64, 68]


def test_beside_others_all_that_is_known_is_taken() -> None:
    """Then steps are not its own."""
    asked = Asked()
    asked.ask(TEXT[:300])
    asked.engine.add(request("beside", [500] * 10, max_tokens=100))
    asked.engine.step()
    before = asked.engine.snapshot.stats.shared_tokens
    asked.engine.add(request("not alone", TEXT[:290], max_tokens=1))
    asked.engine.step()
    assert asked.engine.snapshot.stats.shared_tokens - before == 289
