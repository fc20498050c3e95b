"""What the states of ended sequences may take: asked for, or fitted to what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.models import ggufs
from worker.errors import DoesNotFitError
from worker.machine import DeviceMemory, Memory
from worker.memory import saved_states
from worker.memory.plan import MIN_CELLS, MemoryPlan, check_fit, estimate, plan_memory
from worker.memory.saved_states import (
    COPY_BUFFERS,
    DEFAULT_DISK,
    DEFAULT_MEMORY,
    MAX_COPY_BUFFER,
    MIB,
    disk_limit,
    memory_limit,
)
from worker.model.config import ModelConfig, load_config
from worker.model.hyperparameters import RecurrentConfig
from worker.settings import Settings

GiB = 2**30


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    """The config of a small Llama that was trained on a long context."""
    path = tmp_path_factory.mktemp("kept") / "m.gguf"
    return load_config(ggufs.write_llama(path, layers=8, embedding=256, context=32_768))


def memory(available: int, *devices: DeviceMemory) -> Memory:
    """A machine with that much left."""
    return Memory(total=64 * GiB, available=available, devices=devices)


def plan(config: ModelConfig, available: int, **given: Any) -> MemoryPlan:
    """The plan on such a machine."""
    return estimate(config, Settings(**given), memory(available))


@pytest.mark.parametrize(
    ("given", "spare", "limit"),
    [
        (None, 4 * GiB, GiB),
        (None, 4 * GiB + 3 * MIB, GiB),
        (None, 640 * GiB, DEFAULT_MEMORY),
        (None, 3 * MIB, 0),
        (None, -GiB, 0),
        (0, 4 * GiB, 0),
        (100, 4 * GiB, 100 * MIB),
        (100, 0, 100 * MIB),
    ],
)
def test_memory_limit(given: int | None, spare: int, limit: int) -> None:
    """A quarter of what is left in whole MiB, at most the default; what is asked for is kept."""
    assert memory_limit(Settings(cache_ram=given), spare) == limit


def test_disk_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing without a folder; by default half of the room at most; what is asked for is kept.

    What the folder holds already belongs to the room: else each start would halve the limit.
    """
    folder = tmp_path / "not" / "yet"

    def limit(free: int, **given: Any) -> int:
        def free_bytes(asked: Path) -> int:
            assert asked == folder
            return free

        monkeypatch.setattr(saved_states, "free_bytes", free_bytes)
        return disk_limit(Settings(**given))

    assert limit(100 * GiB) == 0
    given = {"cache_dir": str(folder)}
    assert limit(100 * GiB, **given) == DEFAULT_DISK
    assert limit(10 * GiB, **given) == 5 * GiB
    assert limit(0, **given) == 0
    assert limit(GiB, cache_disk=20_480, **given) == 20 * GiB
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "link").symlink_to("nowhere")
    with (folder / "model" / "block").open("wb") as file:
        file.truncate(4 * GiB)  # a hole: it takes no room
    assert limit(6 * GiB, **given) == 5 * GiB


def test_copies_are_as_large_as_a_state(config: ModelConfig) -> None:
    """Two buffers of the longest sequence's state; larger ones than the limit are not kept."""
    small = msgspec.structs.replace(config, context=1000)
    assert plan(small, 8 * GiB).copy_bytes == 2 * 1000 * plan(small, GiB).kv_bytes_per_token
    assert plan(config, 8 * GiB).copy_bytes == COPY_BUFFERS * MAX_COPY_BUFFER
    recurrent = msgspec.structs.replace(
        small, architecture="mamba", kv_heads=(0,) * 8, recurrent=RecurrentConfig(
            **{**dict.fromkeys(RecurrentConfig.__struct_fields__, 0), "inner_size": 512,
               "state_size": 16},
        ),
    )  # fmt: skip
    found = plan(recurrent, 8 * GiB, parallel=3)
    assert found.kv_bytes == 0
    assert found.recurrent_bytes == 3 * 8 * 512 * 16 * 4 == 3 * found.copy_bytes // 2


def test_the_default_is_fitted_to_what_the_rest_leaves(config: ModelConfig) -> None:
    """A quarter of what the plan's total leaves; the total and the context stay as they are."""
    found = plan(config, 2 * GiB)
    left = 2 * GiB - found.total_bytes
    assert found.cache_bytes == left // 4 // MIB * MIB > 100 * MIB
    assert found.max_cache_bytes == left // MIB * MIB
    without = plan(config, 2 * GiB, cache_ram=0)
    assert without.cache_bytes == 0
    assert (without.total_bytes, without.num_cells) == (found.total_bytes, found.num_cells)
    assert without.max_cells == found.max_cells


def test_where_nothing_is_left_nothing_is_kept(config: ModelConfig) -> None:
    """A model that just fits still starts, and keeps no states."""
    total = plan(config, 2 * GiB, ctx_size=4096).total_bytes
    found = plan(config, total, ctx_size=4096)
    assert found.fits
    assert found.cache_bytes == found.max_cache_bytes == 0


def test_what_is_asked_for_goes_before_the_context(config: ModelConfig) -> None:
    """A context that was left open is chosen from what the cache leaves, and both fit."""
    free = plan(config, GiB)
    found = plan(config, GiB, cache_ram=880)
    assert found.fits
    assert MIN_CELLS <= found.num_cells < free.num_cells
    assert found.num_slots == free.num_slots
    assert found.cache_bytes == 880 * MIB <= GiB - found.total_bytes


def test_the_longest_context_leaves_room_for_the_cache(config: ModelConfig) -> None:
    """`max_cells` fits beside the cache that was asked for, and one step more does not."""
    longest = plan(config, GiB, cache_ram=500).max_cells
    assert plan(config, GiB, cache_ram=500, ctx_size=longest).fits
    assert not plan(config, GiB, cache_ram=500, ctx_size=longest + 1).fits


@pytest.mark.parametrize("given", [{}, {"ctx_size": 4096}, {"parallel": 2}])
def test_too_much_is_refused_with_what_would_fit(
    config: ModelConfig, given: dict[str, Any]
) -> None:
    """The sentence says what is left, the hint names the most that fits; that fits."""
    settings = Settings(cache_ram=5000, **given)
    refused = estimate(config, settings, memory(GiB))
    assert not refused.fits
    assert refused.num_slots == estimate(config, Settings(**given), memory(GiB)).num_slots
    most = refused.max_cache_bytes // MIB
    with pytest.raises(
        DoesNotFitError, match=rf"Start with --cache-ram {most} or less\.$"
    ) as error:
        plan_memory(config, settings, memory(GiB))
    assert "4.9 GiB" in error.value.message
    assert error.value.exit_code == 4
    smaller = msgspec.structs.replace(settings, cache_ram=most)
    assert plan_memory(config, smaller, memory(GiB)).cache_bytes == most * MIB


def test_too_long_a_context_is_refused_first(config: ModelConfig) -> None:
    """Where the context alone is too long, the hint's context leaves room for the cache."""
    settings = Settings(cache_ram=500, ctx_size=50_000_000)
    longest = estimate(config, settings, memory(GiB)).max_cells
    with pytest.raises(DoesNotFitError, match=rf"Start with --ctx-size {longest} or less\.$"):
        plan_memory(config, settings, memory(GiB))
    with pytest.raises(DoesNotFitError, match=r"start with a smaller --cache-ram\.$"):
        plan_memory(config, msgspec.structs.replace(settings, cache_ram=5000), memory(GiB))


def test_states_are_kept_on_the_host(config: ModelConfig) -> None:
    """With the model on a GPU the cache is fitted to the host's memory, not to the GPU's."""
    settings, gpu = Settings(n_gpu_layers=9), DeviceMemory("CUDA0", 16 * GiB)
    found = estimate(config, settings, memory(GiB, gpu))
    host = sum(place.nbytes for place in found.devices if place.device == "CPU")
    assert found.cache_bytes == (GiB - host) // 4 // MIB * MIB
    large = estimate(config, Settings(n_gpu_layers=9, cache_ram=2000), memory(GiB, gpu))
    assert not large.fits
    with pytest.raises(DoesNotFitError, match="of host memory"):
        check_fit(large, config)
