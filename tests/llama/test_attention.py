"""Fused attention and plain attention: the same cells, the same texts, in planned memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.models import ggufs
from tests.support.models.architectures import WRITERS
from tests.support.slots import kept, open_slots, random_tokens, read
from worker import log
from worker.engine.backend import BatchError
from worker.lifecycle.buffers import asking
from worker.lifecycle.loading import may_be_plain
from worker.llama.backend import LlamaBackend
from worker.llama.context import PLAIN_ROWS, Context, ContextOptions
from worker.llama.library import native
from worker.llama.weights import LoadOptions, Weights
from worker.memory.contexts import Wanted
from worker.model.config import load_config
from worker.settings import Settings

LENGTHS = {0: 5, 1: 130, 3: 300}
# What attention may change: values are f16, and sums are taken in another order.
NEAR = 0.05
MORE_THAN_LAYERS = {
    "deepseek2", "mamba", "rwkv7", "lfm2", "lfm2-window", "granitehybrid", "gemma3", "gemma3-array",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:  # pyright: ignore[reportUnusedFunction]
    """llama.cpp's own lines would bury a failure."""
    log.configure("console", "error")


@pytest.fixture(scope="module", params=sorted(set(WRITERS) - MORE_THAN_LAYERS))
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of each architecture whose attention can be either."""
    return WRITERS[request.param](tmp_path_factory.mktemp("attention") / "model.gguf")


def same(left: Any, right: Any) -> bool:
    """Whether two kept states are equal byte for byte."""
    rows = [np.concatenate([packed for packed, _ in parts]) for parts, _ in (left, right)]
    return np.array_equal(rows[0], rows[1])


def next_logits(backend: LlamaBackend, slot: int, length: int) -> np.ndarray:
    """The logits of one more token, which is forgotten again."""
    found = read(backend, slot, random_tokens(9, 1), length)
    assert backend.drop(slot, length)
    return found


def test_in_another_layout(path: Path) -> None:
    """Plain in streams, fused where a row looks at everybody's cells; states go over byte for byte
    and hardly anything else follows from them."""
    with open_slots(path, flash_attn="auto", plain_rows=32) as backend:
        for slot, length in LENGTHS.items():
            read(backend, slot, random_tokens(slot, length))
        states = {slot: kept(backend.save(slot)) for slot in LENGTHS}
        wanted = {slot: next_logits(backend, slot, length) for slot, length in LENGTHS.items()}
        for unified in (True, False, True):
            assert backend.context.fused != unified
            assert backend.arrange(unified=unified, slots=tuple(LENGTHS)) == set(LENGTHS)
            assert backend.context.fused == unified
            for slot, length in LENGTHS.items():
                assert backend.context.span(slot) == (0, length - 1)
                assert same(kept(backend.save(slot)), states[slot])
                found = next_logits(backend, slot, length)
                assert np.abs(found - wanted[slot]).max() < NEAR


def test_read_in_either_way(path: Path) -> None:
    """A prompt that plain attention reads, in several parts, leaves what fused attention needs."""
    tokens = random_tokens(1, 200)
    with (
        open_slots(path, flash_attn="auto") as fused,
        open_slots(path, flash_attn="auto", plain_rows=32) as plain,
    ):
        assert np.abs(read(plain, 2, tokens) - read(fused, 0, tokens)).max() < NEAR
        state, found = kept(plain.save(2)), next_logits(plain, 2, 200)
        assert plain.share(2, 1, 150)
        assert plain.drop(2, 150)
        assert np.abs(next_logits(plain, 1, 150) - next_logits(plain, 2, 150)).max() < NEAR
        assert fused.restore(3, *state)
        assert np.abs(next_logits(fused, 3, 200) - found).max() < NEAR


def test_a_slot_alone_is_its_own_pool(path: Path) -> None:
    """Nobody else's cells are there to be looked at."""
    with open_slots(path, num_slots=1, flash_attn="auto", plain_rows=32) as backend:
        assert backend.unified
        assert not backend.context.fused


def test_a_change_that_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention stays as it was, and so does what states are written for."""
    create, failures = native.llama_init_from_model, [None]

    def fail_first(weights: Any, params: Any) -> Any:
        return failures.pop() if failures else create(weights, params)

    with open_slots(path, flash_attn="auto", plain_rows=32) as backend:
        read(backend, 1, random_tokens(1, 40))
        state = kept(backend.save(1))
        monkeypatch.setattr(native, "llama_init_from_model", fail_first)
        with pytest.raises(BatchError, match="could not be changed"):
            backend.arrange(unified=True, slots=(1,))
        assert not backend.context.fused
        assert backend.restore(1, *state)
        assert same(kept(backend.save(1)), state)


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_which_models_can_have_either(name: str, tmp_path: Path) -> None:
    """Those of which all layers have keys and values, and look at all cells."""
    config = load_config(WRITERS[name](tmp_path / "model.gguf"))
    assert may_be_plain(config, Settings(parallel=4)) == (name not in MORE_THAN_LAYERS)


@pytest.mark.parametrize(
    "chosen",
    [
        {"flash_attn": "on"},
        {"flash_attn": "off"},
        {"cache_type_k": "q8_0"},
        {"cache_type_v": "q8_0"},
        {"draft": "mtp"},
    ],
)
def test_not_where_the_user_has_chosen(tmp_path: Path, chosen: dict[str, Any]) -> None:
    """Neither against --flash-attn, nor from a cache that plain attention cannot read."""
    config = load_config(WRITERS["qwen2"](tmp_path / "model.gguf"))
    assert may_be_plain(config, Settings())
    assert not may_be_plain(config, Settings(**chosen))


def test_in_planned_memory(tmp_path: Path) -> None:
    """It takes fewer rows at once where contexts are longer, and none where that is not enough;
    none either where more slots than rows would be."""
    path = tmp_path / "model.gguf"
    ggufs.write_llama(path, embedding=512, heads=16, kv_heads=2, layers=2)
    config, found = load_config(path), list[int]()
    with (
        asking(config) as ask,
        Weights(path, LoadOptions(n_gpu_layers=0, no_alloc=True)) as weights,
    ):
        for power in range(10, 18):
            planned = ask(Wanted(settings=Settings(parallel=1), num_cells=1 << power)).compute
            options = ContextOptions(
                num_cells=1 << power, num_slots=1, plain_rows=PLAIN_ROWS, plain_bytes=planned
            )
            with Context(weights, options) as context:
                found.append(context.options.plain_rows)
                held = sum(nbytes for _, nbytes in context.residency.compute_buffers)
            assert held <= planned
        many = ContextOptions(num_cells=65 * 256, num_slots=65, plain_rows=PLAIN_ROWS)
        with Context(weights, many) as context:
            assert context.fused
    assert found == sorted(found, reverse=True)
    assert set(found) == {64, 32, 16, 0}
