"""Types of the KV cache against the lengths of a model's heads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models import ggufs
from worker.errors import ModelLoadError, UsageError
from worker.llama.context import Context, ContextOptions
from worker.llama.weights import LoadOptions, Weights
from worker.machine import Memory
from worker.memory.plan import estimate
from worker.model.config import ModelConfig, load_config
from worker.settings import Settings

PLENTY = Memory(total=1 << 40, available=1 << 40)


def model(folder: Path, head: int, kv_heads: int) -> Path:
    """A tiny Llama with four heads of that length, and so many of keys and values."""
    return ggufs.write_llama(
        folder / "m.gguf", embedding=4 * head, heads=4, kv_heads=kv_heads, layers=1
    )


def settings(kind_k: str, kind_v: str, flash_attn: str) -> Settings:
    return Settings(
        ctx_size=256, parallel=1, cache_type_k=kind_k, cache_type_v=kind_v, flash_attn=flash_attn
    )


def make_context(path: Path, given: Settings) -> None:
    """Have llama.cpp allocate the cache and the buffers."""
    options = ContextOptions(
        num_cells=256, num_slots=1, flash_attn=given.flash_attn,
        cache_type_k=given.cache_type_k, cache_type_v=given.cache_type_v,
    )  # fmt: skip
    with Weights(path, LoadOptions(n_gpu_layers=0)) as weights, Context(weights, options):
        pass


@pytest.mark.parametrize("flash_attn", ["on", "auto"])
@pytest.mark.parametrize(("kind_k", "kind_v"), [("q8_0", "f16"), ("f16", "q4_0"), ("iq4_nl",) * 2])
def test_a_head_must_be_whole_blocks(
    tmp_path: Path, kind_k: str, kind_v: str, flash_attn: str
) -> None:
    """Heads of 16 elements are refused in blocks of 32, as llama.cpp does; heads of 32 run."""
    given = settings(kind_k, kind_v, flash_attn)
    short = model(tmp_path, head=16, kv_heads=2)
    option = "--cache-type-k" if kind_k != "f16" else "--cache-type-v"
    with pytest.raises(UsageError, match=f"{option} .* multiple of 32 .* have 16") as caught:
        estimate(load_config(short), given, PLENTY)
    assert caught.value.code == "USAGE"
    assert caught.value.hint == f"Use {option} f16."
    with pytest.raises(ModelLoadError, match="does not divide"):
        make_context(short, given)
    long = model(tmp_path, head=32, kv_heads=2)
    assert estimate(load_config(long), given, PLENTY).fits
    make_context(long, given)


def test_without_flash_attention_a_row_must_be_whole_blocks(tmp_path: Path) -> None:
    """Two heads of 16 elements are a row of 32 and run; llama.cpp aborts on a row of one."""
    given = settings("q8_0", "f16", "off")
    two = model(tmp_path, head=16, kv_heads=2)
    assert estimate(load_config(two), given, PLENTY).fits
    make_context(two, given)
    with pytest.raises(UsageError, match=r"rows of a multiple of 32 .* have 16"):
        estimate(load_config(model(tmp_path, head=16, kv_heads=1)), given, PLENTY)


@pytest.fixture
def tiny_config(tiny: Path) -> ModelConfig:
    return load_config(tiny)


def test_values_need_flash_attention(tiny_config: ModelConfig) -> None:
    """Without the fused kernel values are stored transposed, which no quantised type allows."""
    with pytest.raises(UsageError, match="q8_0 needs flash attention, which --flash-attn off"):
        estimate(tiny_config, settings("f16", "q8_0", "off"), PLENTY)
    assert estimate(tiny_config, settings("f32", "bf16", "off"), PLENTY).fits
