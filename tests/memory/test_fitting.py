"""What the settings leave open is fitted to the memory: sequences, layers on GPUs, context."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tests.support.cases import for_each
from tests.support.models import ggufs
from worker.errors import DoesNotFitError
from worker.machine import DeviceMemory, Memory
from worker.memory.contexts import ContextBytes, Wanted
from worker.memory.plan import (
    MIN_CELLS,
    OFFLOADING_CELLS,
    MemoryPlan,
    check_room,
    estimate,
    plan_memory,
)
from worker.model.config import ModelConfig, load_config
from worker.settings import DEFAULT_PARALLEL, Settings

GiB = 2**30
LAYERS = 24


@pytest.fixture(scope="module", params=[False, True], ids=["own output", "tied"])
def config(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    """The config of a Llama of 24 layers and a large vocabulary."""
    path = tmp_path_factory.mktemp("offload") / "m.gguf"
    return load_config(
        ggufs.write_llama(path, layers=LAYERS, embedding=256, context=32_768, tied=request.param)
    )


def machine(host: float, *gpus: float, unified: bool = False) -> Memory:
    """A machine with so many bytes left."""
    devices = tuple(
        DeviceMemory(f"CUDA{number}", int(size), unified) for number, size in enumerate(gpus)
    )
    return Memory(total=64 * GiB, available=int(host), devices=devices)


def on(plan: MemoryPlan, device: str, part: str | None = None) -> int:
    """Bytes that the plan puts there."""
    return sum(
        place.nbytes
        for place in plan.devices
        if place.device.startswith(device) and part in (None, place.part)
    )


def test_all_layers_where_there_is_room(config: ModelConfig) -> None:
    """Everything but token embeddings, logits and the process goes to the GPU."""
    plan = estimate(config, Settings(), machine(16 * GiB, 16 * GiB))
    cpu = estimate(config, Settings(ctx_size=plan.num_cells), machine(16 * GiB))
    assert plan.gpu_layers == LAYERS + 1
    assert plan.fits
    assert on(plan, "CPU", "kv") == 0
    assert on(plan, "CUDA", "kv") == plan.kv_bytes == cpu.kv_bytes
    assert plan.total_bytes == on(plan, "CPU") + on(plan, "CUDA")
    assert 0 < on(plan, "CPU", "weights") < 0.5 * config.size_bytes
    assert plan.available_bytes == 32 * GiB


def test_each_layer_moves_its_share(config: ModelConfig) -> None:
    """One layer more is one block's weights and cells more on the GPU; the first is the output."""
    settings = Settings(ctx_size=4096)
    plans = [
        estimate(config, msgspec.structs.replace(settings, n_gpu_layers=n), machine(GiB, GiB))
        for n in range(LAYERS + 2)
    ]
    assert [plan.gpu_layers for plan in plans] == list(range(LAYERS + 2))
    assert on(plans[0], "CUDA") == 0
    assert on(plans[1], "CUDA", "kv") == 0
    assert on(plans[1], "CUDA", "weights") > 0
    cells = [on(plan, "CUDA", "kv") for plan in plans[1:]]
    steps = {b - a for a, b in pairwise(cells)}
    assert len(steps) == 1
    weights = [on(plan, "CUDA", "weights") for plan in plans[1:]]
    assert all(a < b for a, b in pairwise(weights))
    for plan in plans:
        assert on(plan, "CPU", "kv") + on(plan, "CUDA", "kv") == plan.kv_bytes


def test_as_many_layers_as_leave_a_useful_context(config: ModelConfig) -> None:
    """A GPU that is too small gets some layers, and one more would not have fitted."""
    useful = Settings(ctx_size=OFFLOADING_CELLS, n_gpu_layers=LAYERS // 2)
    room = on(estimate(config, useful, machine(GiB, GiB)), "CUDA")
    plan = estimate(config, Settings(), machine(4 * GiB, room))
    assert plan.gpu_layers == LAYERS // 2
    assert plan.fits
    assert plan.num_cells >= MIN_CELLS
    more = Settings(ctx_size=OFFLOADING_CELLS, n_gpu_layers=LAYERS // 2 + 1)
    assert not estimate(config, more, machine(4 * GiB, room)).fits


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    """Of a mixture of experts, which are most of it."""
    path = tmp_path_factory.mktemp("mixed") / "m.gguf"
    return load_config(
        ggufs.write_llama(path, layers=8, embedding=256, feed_forward=1024, context=4096, experts=8)
    )


def test_experts_leave_the_gpu_first(mixed: ModelConfig) -> None:
    """As few as must; layers follow once all of them have left. A number of layers or experts that
    was asked for is kept."""
    settings = Settings(ctx_size=4096)
    whole = on(estimate(mixed, settings, machine(4 * GiB, 4 * GiB)), "CUDA")
    chosen = [
        estimate(mixed, settings, machine(4 * GiB, whole * part // 100)) for part in range(1, 101)
    ]
    assert all(plan.fits for plan in chosen)
    pairs = [(plan.gpu_layers, plan.cpu_experts) for plan in chosen]
    assert pairs[-1] == (9, 0)
    assert pairs == sorted(pairs, key=lambda pair: (pair[0], -pair[1] * (pair[0] > 0)))
    assert {experts for layers, experts in pairs if layers == 9} == set(range(9))
    assert {experts for layers, experts in pairs if 0 < layers < 9} == {8}
    room = machine(4 * GiB, whole * 0.8)
    for given, expected in (
        ({"cpu_moe": 0}, 0), ({"cpu_moe": 5}, 5), ({"cpu_moe": 10_000}, 8),
        ({"override_tensor": (("attn", "CPU"),)}, 0),
    ):  # fmt: skip
        given = msgspec.structs.replace(settings, **given)
        assert estimate(mixed, given, room).cpu_experts == expected
    with pytest.raises(DoesNotFitError):
        plan_memory(mixed, Settings(ctx_size=4096, n_gpu_layers=-1), room)


def test_tensors_that_are_named(mixed: ModelConfig) -> None:
    """The first expression counts; what is moved to the CPU is missing on the GPU."""
    settings, room = Settings(ctx_size=1024, n_gpu_layers=-1), machine(GiB, GiB, GiB)
    plain = estimate(mixed, settings, room)
    for named, there in (
        ((("_exps", "CPU"),), {"CPU": 8}),
        (((r"^blk\.[0-3]\.ffn_.*_exps", "CPU"),), {"CPU": 4}),
        (((r"blk\.0\.ffn.*_exps", "CUDA1"), (r"exps", "CPU")), {"CPU": 7, "CUDA1": 1}),
    ):
        given = msgspec.structs.replace(settings, override_tensor=named)
        plan = estimate(mixed, given, room)
        assert sum(mixed.expert_bytes) == 8 * mixed.expert_bytes[0]
        moved = there["CPU"] * mixed.expert_bytes[0]
        assert on(plan, "CPU", "weights") - on(plain, "CPU", "weights") == moved
        assert on(plain, "CUDA", "weights") - on(plan, "CUDA", "weights") == moved
    assert on(plan, "CUDA1", "weights") > on(plain, "CUDA1", "weights") - 4 * mixed.expert_bytes[0]


def test_no_layers_rather_than_none_at_all(config: ModelConfig) -> None:
    """A GPU that holds nothing leaves the model on the CPU."""
    plan = plan_memory(config, Settings(), machine(4 * GiB, 1 << 10))
    assert plan.gpu_layers == 0


def test_given_layers_are_kept(config: ModelConfig) -> None:
    """A number of layers that was asked for is planned, and refused where it does not fit."""
    plan = estimate(config, Settings(n_gpu_layers=3), machine(4 * GiB, 4 * GiB))
    assert plan.gpu_layers == 3
    assert estimate(config, Settings(n_gpu_layers=-1), machine(GiB, GiB)).gpu_layers == LAYERS + 1
    with pytest.raises(DoesNotFitError):
        plan_memory(config, Settings(n_gpu_layers=LAYERS), machine(4 * GiB, 1 << 20))


def test_unified_memory_counts_once(config: ModelConfig) -> None:
    """Memory that a GPU shares with the CPU counts once."""
    separate = estimate(config, Settings(ctx_size=4096), machine(GiB, GiB))
    assert separate.available_bytes == 2 * GiB
    plan = estimate(config, Settings(ctx_size=4096), machine(GiB, GiB, unified=True))
    assert plan.available_bytes == GiB
    tight = machine(separate.total_bytes - 1, GiB, unified=True)
    settings = Settings(ctx_size=4096, n_gpu_layers=LAYERS + 1, parallel=4)
    assert estimate(config, settings, machine(separate.total_bytes, GiB, unified=True)).fits
    assert not estimate(config, settings, tight).fits


@pytest.mark.parametrize("room", [0.15, 0.3, 0.6, 2.5])
def test_the_longest_context_takes_few_questions(config: ModelConfig, room: float) -> None:
    """Buffers that grow from some number of cells on: the longest context fits, one step more does
    not, and llama.cpp is asked of few sizes."""
    asked = list[int]()

    def ask(wanted: Wanted) -> ContextBytes:
        asked.append(wanted.num_cells)
        cells = wanted.num_cells
        return ContextBytes(cells * 1000, 0, max(50 << 20, cells * 3000 - (100 << 20)))

    settings = Settings(parallel=1, ctx_size=MIN_CELLS)
    least = estimate(config, settings, machine(64 * GiB), ask=ask).total_bytes
    memory = machine(least + room * GiB)
    asked.clear()
    longest = estimate(config, settings, memory, ask=ask).max_cells
    assert len(asked) <= 16
    for cells, fits in ((longest, True), (longest + 1, False)):
        given = msgspec.structs.replace(settings, ctx_size=cells)
        assert estimate(config, given, memory, ask=ask).fits is fits


@pytest.fixture
def stateful(config: ModelConfig) -> ModelConfig:
    """The same with a vocabulary for which each sequence's logits cost 1 MB."""
    return msgspec.structs.replace(config, vocab_size=250_000)


def test_fewer_sequences_where_memory_is_short(stateful: ModelConfig) -> None:
    """The default number of sequences is lowered until something fits; a given number is not."""
    three = estimate(stateful, Settings(ctx_size=MIN_CELLS, parallel=3), machine(64 * GiB))
    room = machine(three.total_bytes)
    plan = plan_memory(stateful, Settings(), room)
    assert plan.num_slots == 3
    assert plan.num_cells == MIN_CELLS
    assert plan_memory(stateful, Settings(), machine(64 * GiB)).num_slots == DEFAULT_PARALLEL
    with pytest.raises(DoesNotFitError, match=r"Start with --parallel 3 or less\.$"):
        plan_memory(stateful, Settings(parallel=8, ctx_size=MIN_CELLS), room)
    assert plan_memory(stateful, Settings(parallel=3, ctx_size=MIN_CELLS), room).fits


def test_the_context_goes_first(stateful: ModelConfig) -> None:
    """A long context that was asked for with many sequences: the hint keeps the sequences."""
    plan = estimate(stateful, Settings(parallel=4, ctx_size=2048), machine(64 * GiB))
    with pytest.raises(DoesNotFitError, match="Start with --ctx-size "):
        plan_memory(stateful, Settings(parallel=4, ctx_size=1 << 20), machine(plan.total_bytes))


@for_each("given", [{}, {"ctx_size": 8192}, {"parallel": 2}, {"n_gpu_layers": 5}])
@for_each("gpu", [0.02, 0.05, 0.2, 4])
def test_what_is_fitted_fits(config: ModelConfig, given: dict[str, Any], gpu: float) -> None:
    """Where a plan does not fit, no other choice of what was left open would fit either."""
    memory = machine(GiB, gpu * GiB)
    plan = estimate(config, Settings(**given), memory)
    if not plan.fits:
        assert "n_gpu_layers" in given
    assert plan.num_cells == given.get("ctx_size", plan.num_cells)
    assert plan.num_slots == given.get("parallel", plan.num_slots)
    assert plan.gpu_layers == given.get("n_gpu_layers", plan.gpu_layers)


def test_room_for_what_was_put_away(config: ModelConfig) -> None:
    """A running process needs room for what it loads, on each device, and not for itself."""
    for memory in (machine(8 * GiB), machine(8 * GiB, 8 * GiB)):
        plan = estimate(config, Settings(ctx_size=2048), memory)
        check_room(plan, memory)
        own = on(plan, "CPU", "process")
        needed = on(plan, "CPU") - own
        check_room(plan, msgspec.structs.replace(memory, available=needed))
        with pytest.raises(DoesNotFitError, match="are available"):
            check_room(plan, msgspec.structs.replace(memory, available=needed - 1))
    full = tuple(msgspec.structs.replace(device, available=0) for device in memory.devices)
    with pytest.raises(DoesNotFitError, match="are available"):
        check_room(plan, msgspec.structs.replace(memory, devices=full))
