"""The two layouts of the cells: their sizes, batches that llama.cpp splits, failed changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.models.architectures import WINDOW, WRITERS
from tests.support.slots import kept, open_slots, random_tokens, read
from worker import log
from worker.engine.backend import BatchError, OutOfCells
from worker.errors import DoesNotFitError, ModelLoadError
from worker.llama.library import native

EXACT: dict[str, Any] = {"flash_attn": "off", "cache_type_k": "f32", "cache_type_v": "f32"}


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:  # pyright: ignore[reportUnusedFunction]
    """llama.cpp's own lines would bury a failure."""
    log.configure("console", "error")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with plain attention."""
    return WRITERS["qwen2"](tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("num_cells", "num_slots", "stream_cells"),
    [(2048, 4, 512), (2000, 3, 512), (1025, 4, 256), (1023, 4, 256), (768, 4, 0), (1024, 1, 0)],
)
def test_cells(model: Path, num_cells: int, num_slots: int, stream_cells: int) -> None:
    """A slot's own cells are a multiple of 256, all of them no more than in the unified layout."""
    with open_slots(model, num_cells=num_cells, num_slots=num_slots) as backend:
        assert backend.shape.stream_cells == stream_cells
        assert backend.unified == (not stream_cells)
        assert backend.shape.num_cells == -(-num_cells // 256) * 256
        assert backend.shape.num_slots == num_slots
        held = native.llama_n_ctx(backend.context.handle)
        assert (
            held == (num_slots * stream_cells or backend.shape.num_cells) <= backend.shape.num_cells
        )
        if not stream_cells:
            read(backend, 0, random_tokens(1, 5))
            with pytest.raises(BatchError, match="too few"):
                backend.arrange(unified=False, slots=(0,))
            assert backend.unified
            assert backend.save(0) is None
        else:
            backend.arrange(unified=True, slots=())
            assert native.llama_n_ctx(backend.context.handle) == backend.shape.num_cells


def test_a_slot_has_no_more_than_its_own(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In streams a sequence ends where its cells end, and its neighbour's are not touched.

    Nobody is warned: the engine makes room.
    """
    log.configure("console")
    with open_slots(model, num_cells=1024) as backend:
        read(backend, 1, random_tokens(1, 256))
        read(backend, 2, random_tokens(2, 256))
        state = kept(backend.save(1))
        with pytest.raises(OutOfCells):
            read(backend, 1, random_tokens(3, 1), 256)
        assert "memory slot" not in capsys.readouterr().err
        assert backend.context.span(1) == backend.context.span(2) == (0, 255)
        backend.arrange(unified=True, slots=(1,))
        read(backend, 1, random_tokens(3, 300), 256)
        long = kept(backend.save(1))
        assert backend.restore(2, *state)
        assert backend.arrange(unified=False, slots=(1, 2)) == {2}
        assert not backend.unified
        assert [backend.save(slot) is not None for slot in range(4)] == [False, False, True, False]
        assert not backend.restore(3, *long)
        assert backend.restore(3, *state)


@pytest.mark.parametrize("name", ["mamba", "rwkv7"])
def test_without_cells(tmp_path: Path, name: str) -> None:
    """Slots of a recurrent model do not limit each other: they never need another layout."""
    with open_slots(WRITERS[name](tmp_path / "model.gguf"), num_cells=512) as backend:
        assert backend.shape.stream_cells == backend.shape.num_cells == 512
        assert not backend.unified
        for slot in range(4):
            read(backend, slot, random_tokens(slot, 300))
        backend.arrange(unified=True, slots=(2,))
        assert [backend.context.span(slot)[1] for slot in range(4)] == [-1, -1, 299, -1]


def worst_of_split_batches(path: Path, *, unified: bool, one_prompt: bool = False) -> float:
    """How far logits are from those of the same text alone, over random batches of four texts.

    one_prompt: more than one row only of one text in each batch
    """
    draw, worst = random.Random(5), 0.0
    cells = 256 if unified else 1024  # places of cells behind a window are taken again and again
    with (
        open_slots(path, num_cells=cells, unified=unified, **EXACT) as backend,
        open_slots(path, **EXACT) as alone,
    ):
        texts = [random_tokens(slot, 300) for slot in range(4)]
        done = [0] * 4
        for _ in range(150):
            backend.batch.clear()
            last: dict[int, int] = {}
            for slot in draw.sample(range(4), draw.randint(1, 4)):
                count = draw.choice([1, 1, 2, 3, 7, WINDOW + 3, 25])
                count = 1 if one_prompt and last else count
                if done[slot] + count > draw.randint(30, cells // 4):  # another sequence begins
                    backend.drop(slot)
                    done[slot] = 0
                rows = texts[slot][done[slot] : done[slot] + count]
                last[slot] = backend.batch.add(rows, done[slot], slot) + count - 1
                backend.batch.outputs[last[slot]] = 1
                done[slot] += count
            backend.decode()
            for slot, row in last.items():
                alone.drop(slot)
                wanted = read(alone, slot, texts[slot][: done[slot]])
                worst = max(worst, float(np.abs(backend.logits(row) - wanted).max()))
    return worst


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("name", ["gemma3", "gemma3-array", "lfm2-window"])
def test_batches_that_are_split(tmp_path: Path, name: str, *, unified: bool) -> None:
    """A batch may have any number of rows of each slot, and no cell in a window is lost; but where
    the backend says so, of one slot only."""
    path = WRITERS[name](tmp_path / "model.gguf")
    with open_slots(path, unified=unified) as backend:
        one_prompt = backend.unified and backend.shape.one_prompt
    assert one_prompt == (unified and name == "lfm2-window")
    assert worst_of_split_batches(path, unified=unified, one_prompt=one_prompt) < 0.01


def test_lost_cells_would_be_seen(tmp_path: Path) -> None:
    """In the one place where llama.cpp loses cells, logits differ; else no rule is needed there."""
    path = WRITERS["lfm2-window"](tmp_path / "model.gguf")
    assert worst_of_split_batches(path, unified=True) > 0.1


def refuse(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let llama.cpp fail to create a context so many times."""
    create: Callable[[Any, Any], Any] = native.llama_init_from_model
    left = [None] * times

    def fail_first(weights: Any, params: Any) -> Any:
        return left.pop() if left else create(weights, params)

    monkeypatch.setattr(native, "llama_init_from_model", fail_first)


def test_a_change_that_fails(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old layout is there again, all slots are empty, the threads are as they were."""
    with open_slots(model, threads=2, threads_batch=2) as backend:
        read(backend, 1, random_tokens(1, 40))
        state = kept(backend.save(1))
        backend.context.set_threads(1, 2)
        refuse(monkeypatch, 1)
        with pytest.raises(BatchError, match="could not be changed"):
            backend.arrange(unified=True, slots=(1,))
        assert not backend.unified
        assert backend.context.span(1) == (-1, -1)
        assert native.llama_n_threads(backend.context.handle) == 1
        assert native.llama_n_threads_batch(backend.context.handle) == 2
        assert backend.restore(1, *state)
        backend.arrange(unified=True, slots=(1,))
        assert native.llama_n_threads(backend.context.handle) == 1
        assert backend.context.span(1) == (0, 39)


def test_no_way_back(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no cells can be allocated at all, that is an error, and so is each step after it."""
    with open_slots(model) as backend:
        refuse(monkeypatch, 2)
        with pytest.raises((DoesNotFitError, ModelLoadError)):
            backend.arrange(unified=True, slots=())
        backend.batch.clear()
        backend.batch.add_one(5, 0, 0)
        with pytest.raises(BatchError, match="no cells"):
            backend.decode()
        assert backend.drop(0)
        assert backend.save(0) is None


def test_a_window_that_was_passed(tmp_path: Path) -> None:
    """A restored window holds what the last token looks at, and says so."""
    with open_slots(WRITERS["gemma3"](tmp_path / "model.gguf")) as backend:
        read(backend, 0, random_tokens(1, 300))
        assert backend.holds(0, 0, 100)
        assert backend.restore(1, *kept(backend.save(0)))
        assert backend.holds(1, 0, 300)
        assert not backend.holds(1, 0, 100)
        assert backend.drop(1, 290)
        assert backend.save(1) is None


def test_the_warm_up_is_one_row(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU one token warms up, and shows how states are laid out."""
    rows: list[int] = []
    compute = native.llama_decode

    def decode(handle: Any, batch: Any) -> int:
        rows.append(batch.n_tokens)
        return compute(handle, batch)

    monkeypatch.setattr(native, "llama_decode", decode)
    with open_slots(model) as backend:
        backend.warm_up()
        assert backend.state_form is not None
    assert rows == [1]


def test_the_state_of_a_fresh_backend(model: Path) -> None:
    """The layout of states is known before the first request, and leaves nothing behind."""
    with open_slots(model) as backend, open_slots(model, **EXACT) as other:
        backend.warm_up()
        assert backend.state_form is not None
        assert other.state_form is not None
        assert len(backend.state_form.signature) == 32
        assert other.state_form.signature != backend.state_form.signature
        assert all(each.context.span(0) == (-1, -1) for each in (backend, other))
