"""The memory plan compared with llama.cpp's own report, and the decisions that follow from it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.models import write_model
from benchmarks.shapes import ModelShape as Shape
from tests.support.models import ggufs
from tests.support.models.adapters import lora_gguf, write_lora
from tests.support.models.projectors import SEEING
from worker import log
from worker.errors import DoesNotFitError
from worker.llama import library
from worker.llama.adapters import adapter_key
from worker.llama.context import Context, ContextOptions
from worker.llama.packing import packed_encodings
from worker.llama.weights import LoadOptions, Weights
from worker.machine import Memory, human_bytes
from worker.memory.contexts import CELL_STEP, Wanted, own_cells
from worker.memory.estimate import estimator
from worker.memory.plan import (
    DEFAULT_CELLS,
    MIN_CELLS,
    MemoryPlan,
    check_fit,
    estimate,
    plan_memory,
    process_bytes,
)
from worker.model.adapter import load_adapter
from worker.model.config import ModelConfig, load_config
from worker.model.hyperparameters import RecurrentConfig
from worker.model.projector import load_projector
from worker.settings import Settings

GiB = 2**30
PLENTY = Memory(total=64 * GiB, available=64 * GiB, packed=packed_encodings())
# llama.cpp prints MiB with two decimals, for each of at most three buffers.
PRINTED = 3 * 0.005 * 2**20

LLAMA: dict[str, Any] = {
    "layers": 4, "embedding": 512, "heads": 8, "kv_heads": 2, "feed_forward": 1536,
}  # fmt: skip
# Mapped, the file counts up to the last tensor that is not reordered; with many layers what lies
# behind it is little.
DEEP: dict[str, Any] = {
    "layers": 24, "embedding": 256, "heads": 4, "kv_heads": 2, "feed_forward": 768,
}  # fmt: skip
NARROW = Shape(layers=3, embedding=256, heads=4, kv_heads=1, head_dim=128, feed_forward=1024,
               vocab=48_000, context=4096, tied=True)  # fmt: skip
OTHERS: dict[str, Shape] = {
    "large vocabulary": NARROW,
    "sliding window": Shape(
        architecture="gemma3", layers=7, embedding=512, heads=4, kv_heads=1, head_dim=128,
        feed_forward=2048, vocab=16_000, context=8192, tied=True, window=512,
    ),
    "wide heads": Shape(
        architecture="qwen3", layers=4, embedding=512, heads=8, kv_heads=4, head_dim=128,
        feed_forward=1536, vocab=8000, context=8192,
    ),
    "experts": Shape(
        architecture="qwen3moe", layers=4, embedding=512, heads=8, kv_heads=2, head_dim=64,
        feed_forward=1536, vocab=8000, context=8192, experts=8, experts_used=4,
        expert_feed_forward=512,
    ),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def quiet() -> None:
    """llama.cpp's own lines would bury a failure."""
    log.configure("console")


def plan_and_report(
    path: Path, settings: Settings, *, unified: bool = True
) -> tuple[MemoryPlan, int, int, int]:
    """The plan, and llama.cpp's own bytes of weights, KV and compute in one of the layouts."""
    plan = estimate(load_config(path), settings, PLENTY)
    options = ContextOptions(
        num_cells=plan.num_cells,
        num_slots=plan.num_slots,
        unified=unified,
        batch_size=settings.batch_size,
        ubatch_size=settings.ubatch_size,
        cache_type_k=settings.cache_type_k,
        cache_type_v=settings.cache_type_v,
        flash_attn=settings.flash_attn,
    )
    load = LoadOptions(n_gpu_layers=0)
    with Weights(path, load) as weights, Context(weights, options) as context:
        buffers = (
            weights.residency.buffers,
            context.residency.kv_buffers,
            context.residency.compute_buffers,
        )
        weights_bytes, kv_bytes, compute_bytes = (sum(n for _, n in part) for part in buffers)
    return plan, weights_bytes, kv_bytes, compute_bytes


def assert_close(path: Path, settings: Settings) -> None:
    plan, weights, kv, compute = plan_and_report(path, settings)
    cache = plan.kv_bytes + plan.recurrent_bytes
    assert cache == pytest.approx(kv, abs=PRINTED)
    assert plan.weights_bytes == pytest.approx(weights, rel=0.03, abs=PRINTED)
    total = weights + kv + compute
    assert total > 4 << 20, "too small to say anything"
    assert plan.weights_bytes + cache + plan.compute_bytes == pytest.approx(total, rel=0.05)


@pytest.mark.parametrize("tied", [False, True], ids=["own output", "tied"])
@pytest.mark.parametrize("encoding", ["F16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"])
def test_encodings(tmp_path: Path, encoding: str, tied: bool) -> None:
    """Weights are planned as llama.cpp stores them: reordered, twice where tied."""
    path = ggufs.write_llama(tmp_path / "m.gguf", encoding=encoding, tied=tied, **DEEP)
    assert_close(path, Settings(ctx_size=1024))


@pytest.mark.parametrize(
    "given",
    [
        {"ctx_size": 512, "parallel": 1},
        {"ctx_size": 2048, "parallel": 16},
        {"ctx_size": 8192, "parallel": 4},
        {"ctx_size": 8192, "parallel": 4, "ubatch_size": 64},
        {"ctx_size": 8192, "batch_size": 1024, "ubatch_size": 1024},
        {"ctx_size": 8192, "cache_type_k": "q8_0", "cache_type_v": "q4_0"},
        {"ctx_size": 8192, "cache_type_k": "f32", "cache_type_v": "f32"},
        {"ctx_size": 2048, "flash_attn": "off"},
    ],
    ids=lambda given: ",".join(f"{name}={value}" for name, value in given.items()),
)
def test_contexts(tmp_path: Path, given: dict[str, Any]) -> None:
    """KV cells are exact and the sum within 5 % for any cells, slots, batch and cache type."""
    path = ggufs.write_llama(tmp_path / "m.gguf", encoding="F16", **LLAMA)
    assert_close(path, Settings(**given))


@pytest.mark.parametrize("slots", [1, 16])
@pytest.mark.parametrize("name", OTHERS)
def test_shapes(tmp_path: Path, name: str, slots: int) -> None:
    """The sum is within 5 % for other families of models."""
    path = write_model(tmp_path / "m.gguf", OTHERS[name], "Q4_K_M", hollow=True)
    assert_close(path, Settings(ctx_size=4096, parallel=slots))


@pytest.mark.parametrize("name", ["sliding window", "wide heads", "large vocabulary"])
@pytest.mark.parametrize(
    "given",
    [
        {"ctx_size": 4096, "parallel": 5},  # 5 x 768 cells: some are left over
        {"ctx_size": 8192, "parallel": 8, "flash_attn": "off"},
        {"ctx_size": 16384, "parallel": 4, "ubatch_size": 2048},
        {"ctx_size": 16384, "parallel": 4, "ubatch_size": 2048, "flash_attn": "off"},
    ],
    ids=lambda given: ",".join(f"{name}={value}" for name, value in given.items()),
)
def test_cells_of_their_own(tmp_path: Path, name: str, given: dict[str, Any]) -> None:
    """Where each slot has cells of its own, the buffers are within 5 % too; at first as much of
    them is resident as short steps use."""
    path = write_model(tmp_path / "m.gguf", OTHERS[name], "Q4_K_M", hollow=True)
    settings, config = Settings(**given), load_config(path)
    plan, weights, kv, compute = plan_and_report(path, settings, unified=False)
    own = own_cells(plan.num_cells, plan.num_slots)
    cells = own * plan.num_slots * plan.kv_bytes_per_token
    ask = estimator(config)
    wanted = Wanted(settings=settings, num_cells=plan.num_cells, unified=False)
    streams = ask(wanted)
    planned = plan.weights_bytes + cells + streams.compute
    assert planned == pytest.approx(weights + kv + compute, rel=0.05)
    beside = process_bytes(config) + 4 * config.vocab_size * plan.num_slots
    used = plan.first_bytes - plan.weights_bytes - cells - beside
    pieces = msgspec.structs.replace(settings, ubatch_size=min(128, settings.ubatch_size))
    short = msgspec.structs.replace(wanted, settings=pieces, chunk_outputs=0)
    assert used == ask(short).compute
    assert 0 < used <= streams.compute
    assert plan.first_bytes <= plan.total_bytes


def write_mamba(path: Path, *, layers: int = 6, width: int = 768) -> Path:
    """A Mamba with weights of zero."""
    inner, state, rank = 2 * width, 16, 48
    sizes = {"block_count": layers, "context_length": 4096, "embedding_length": width,
             "feed_forward_length": 0, "attention.head_count": 0, "ssm.conv_kernel": 4,
             "ssm.inner_size": inner, "ssm.state_size": state,
             "ssm.time_step_rank": rank}  # fmt: skip
    gguf = ggufs.Gguf(
        keys={
            "general.architecture": ggufs.text("mamba"),
            "mamba.attention.layer_norm_rms_epsilon": ggufs.f32(1e-5),
            **{f"mamba.{name}": ggufs.u32(value) for name, value in sizes.items()},
            **ggufs.spm_vocabulary(320),
        }
    )
    block = {"attn_norm.weight": (width,), "ssm_in.weight": (width, 2 * inner),
             "ssm_conv1d.weight": (4, inner), "ssm_conv1d.bias": (inner,),
             "ssm_x.weight": (inner, rank + 2 * state), "ssm_dt.weight": (rank, inner),
             "ssm_dt.bias": (inner,), "ssm_a": (state, inner), "ssm_d": (inner,),
             "ssm_out.weight": (inner, width)}  # fmt: skip
    tensors: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (width, 320),
        "output_norm.weight": (width,),
        **{f"blk.{i}.{name}": shape for i in range(layers) for name, shape in block.items()},
    }
    for name, shape in tensors.items():
        gguf.tensors.append(ggufs.Tensor(name, shape, 0, bytes(4 * math.prod(shape))))
    return gguf.write(path)


@pytest.mark.parametrize("slots", [1, 16])
def test_recurrent_models(tmp_path: Path, slots: int) -> None:
    """State instead of cells, one for each slot, is planned as llama.cpp allocates it."""
    assert_close(write_mamba(tmp_path / "m.gguf"), Settings(ctx_size=2048, parallel=slots))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    """The config of a small Llama trained on 2048 tokens."""
    path = tmp_path_factory.mktemp("memory") / "tiny.gguf"
    return load_config(ggufs.write_llama(path, context=2048))


def changed(config: ModelConfig, **changes: Any) -> ModelConfig:
    """The config with other values, for models that are too large to write."""
    return msgspec.structs.replace(config, **changes)


def memory(available: int) -> Memory:
    """A machine with that much left."""
    return Memory(total=max(available, GiB), available=available)


def test_parts_make_the_total(tiny: ModelConfig) -> None:
    """The total is the sum of the parts, and so are the devices' shares."""
    plan = estimate(tiny, Settings(), PLENTY)
    parts = (plan.weights_bytes, plan.kv_bytes, plan.recurrent_bytes, plan.compute_bytes,
             plan.output_bytes, plan.copy_bytes, plan.process_bytes)  # fmt: skip
    assert plan.total_bytes == sum(parts) == sum(share.nbytes for share in plan.devices)


def test_default_is_the_trained_context_for_each_sequence(tiny: ModelConfig) -> None:
    """With memory to spare each sequence gets the context that the model was trained on."""
    assert estimate(tiny, Settings(parallel=3), PLENTY).num_cells == 3 * 2048


def test_default_is_capped(tiny: ModelConfig) -> None:
    """Unless asked to, a model trained on a long context does not take all of it."""
    assert estimate(changed(tiny, context=131_072), Settings(), PLENTY).num_cells == DEFAULT_CELLS


def test_default_leaves_memory_to_others(tiny: ModelConfig) -> None:
    """The default context takes at most 80 % of what the weights leave, and nearly that."""
    wide = changed(tiny, context=131_072, kv_heads=(512, 512))
    floor = estimate(wide, Settings(ctx_size=CELL_STEP), PLENTY).total_bytes
    available = floor + GiB
    plan = plan_memory(wide, Settings(), memory(available))
    assert MIN_CELLS < plan.num_cells < DEFAULT_CELLS
    assert 0.7 * GiB < plan.total_bytes - floor < 0.81 * GiB


def test_asked_context_is_rounded_up(tiny: ModelConfig) -> None:
    """llama.cpp rounds a context up to 256 cells, and so does the plan."""
    assert estimate(tiny, Settings(ctx_size=1000), PLENTY).num_cells == 1024


def test_longest_context_is_the_last_that_fits(tiny: ModelConfig) -> None:
    """`max_cells` fits, and one step more does not."""
    room = memory(GiB)
    longest = estimate(tiny, Settings(), room).max_cells
    assert estimate(tiny, Settings(ctx_size=longest), room).fits
    assert not estimate(tiny, Settings(ctx_size=longest + 1), room).fits


def test_refusal_names_need_have_and_what_would_fit(tiny: ModelConfig) -> None:
    """Too long a context exits with 4, says both sizes and the longest context that fits."""
    room = memory(GiB)
    settings = Settings(ctx_size=50_000_000)
    plan = estimate(tiny, settings, room)
    with pytest.raises(DoesNotFitError) as refused:
        plan_memory(tiny, settings, room)
    assert refused.value.exit_code == 4
    assert human_bytes(plan.total_bytes) in refused.value.message
    assert "1.0 GiB" in refused.value.message
    assert f"--ctx-size {plan.max_cells} " in (refused.value.hint or "")


def test_refusal_when_no_context_fits(tiny: ModelConfig) -> None:
    """Weights that leave no room for MIN_CELLS are refused, whatever context is asked for."""
    room = memory(1 << 20)
    for settings in (Settings(), Settings(ctx_size=MIN_CELLS)):
        with pytest.raises(DoesNotFitError, match="No context fits"):
            plan_memory(tiny, settings, room)
    assert estimate(tiny, Settings(), room).max_cells == 0


def test_a_plan_that_fits_passes(tiny: ModelConfig) -> None:
    """`check_fit` says nothing about a plan that fits."""
    plan = estimate(tiny, Settings(), PLENTY)
    assert plan.fits
    check_fit(plan, tiny)


def cell(config: ModelConfig, **given: Any) -> int:
    """Bytes of a cell, as they are estimated."""
    return estimate(config, Settings(**given), PLENTY).kv_bytes_per_token


def test_latent_attention_keeps_keys_only(tiny: ModelConfig) -> None:
    """DeepSeek-V2-Lite: 27 layers of one 576-wide latent key, no values."""
    lite = changed(
        tiny, architecture="deepseek2", layers=27, heads=(16,) * 27, kv_heads=(1,) * 27,
        key_length=576, value_length=512, key_length_mla=192, value_length_mla=128,
    )  # fmt: skip
    assert cell(lite) == 27 * 576 * 2


def test_shared_layers_have_no_cells(tiny: ModelConfig) -> None:
    """Layers that use the keys and values of earlier ones cost nothing."""
    shared = changed(
        tiny, architecture="gemma4", layers=35, heads=(8,) * 35, kv_heads=(1,) * 35,
        key_length=512, value_length=512, key_length_swa=256, value_length_swa=256,
        sliding_pattern=(1, 1, 1, 1, 0) * 7, shared_kv_layers=20,
    )  # fmt: skip
    assert cell(shared) == 3 * (4 * (256 + 256) + 512 + 512) * 2


def test_prediction_layers_have_no_cells(tiny: ModelConfig) -> None:
    """Layers for multi-token prediction are not part of the trunk."""
    config = changed(tiny, layers=6, heads=(4,) * 6, kv_heads=(2,) * 6, nextn_layers=1)
    assert cell(config) == 5 * cell(
        changed(config, layers=1, heads=(4,), kv_heads=(2,), nextn_layers=0)
    )


def test_values_across_are_padded_to_the_widest_layer(tiny: ModelConfig) -> None:
    """Without the fused kernel every layer's values take the room of the widest."""
    uneven = changed(tiny, kv_heads=(1, 3))
    head = tiny.key_length
    assert cell(uneven) == (1 + 3 + 1 + 3) * head * 2
    assert cell(uneven, flash_attn="off") == (1 + 3 + 3 + 3) * head * 2


NO_STATE = dict.fromkeys(RecurrentConfig.__struct_fields__, 0)


def test_recurrent_models_keep_state_for_each_slot(tiny: ModelConfig) -> None:
    """Mamba-130m: convolution 3 x 1536 and state 16 x 1536 floats a layer, no cells."""
    sizes = RecurrentConfig(
        **{**NO_STATE, "conv_kernel": 4, "inner_size": 1536, "state_size": 16, "time_step_rank": 48}
    )
    mamba = changed(
        tiny, architecture="mamba", layers=24, heads=(0,) * 24, kv_heads=(0,) * 24, recurrent=sizes
    )
    plan = estimate(mamba, Settings(parallel=8, ctx_size=1024), PLENTY)
    assert plan.kv_bytes == 0
    assert plan.recurrent_bytes == 8 * 24 * (3 * 1536 + 16 * 1536) * 4


@pytest.mark.parametrize(
    ("kv_heads", "attention", "recurrent"),
    [
        ((0, 0, 0, 0, 2, 0, 0, 0), 1, 7),
        ((0, 0, 2, 0, 0, 2, 0, 0), 2, 6),
        ((2,) * 8, 8, 8),
    ],
)
def test_hybrid_models_split_their_layers(
    tiny: ModelConfig, kv_heads: tuple[int, ...], attention: int, recurrent: int
) -> None:
    """A layer without heads has a state; where all have heads, each may have both."""
    sizes = RecurrentConfig(**{**NO_STATE, "inner_size": 96, "state_size": 16})
    config = changed(tiny, layers=8, heads=(4,) * 8, kv_heads=kv_heads, recurrent=sizes)
    plan = estimate(config, Settings(parallel=1, ctx_size=256), PLENTY)
    head = tiny.key_length + tiny.value_length
    assert plan.kv_bytes_per_token == attention * 2 * head * 2
    assert plan.recurrent_bytes == recurrent * 96 * 16 * 4


@pytest.mark.parametrize(
    ("sizes", "elements"),
    [
        ({"wkv_head_size": 64}, 64 * (64 + 2)),
        ({"wkv_head_size": 64, "token_shift": 1}, 64 * (64 + 1)),
        ({"short_conv": 3}, 64 * 2),
        ({"kda_head_dim": 128, "conv_kernel": 4}, 3 * 3 * 4 * 128 + 128 * 128 * 4),
        ({"conv_kernel": 4, "inner_size": 96, "state_size": 16, "groups": 2},
         3 * (96 + 2 * 2 * 16) + 96 * 16),
    ],
    ids=["rwkv7", "rwkv6qwen2", "lfm2", "kimi", "mamba2"],
)  # fmt: skip
def test_state_sizes(tiny: ModelConfig, sizes: dict[str, int], elements: int) -> None:
    """The state of one layer and one sequence, as llama.cpp's hyperparameters define it."""
    recurrent = RecurrentConfig(**{**NO_STATE, **sizes})
    config = changed(tiny, layers=1, heads=(4,), kv_heads=(0,), recurrent=recurrent)
    plan = estimate(config, Settings(parallel=1), PLENTY)
    assert plan.recurrent_bytes == (1 + plan.states_kept) * 4 * elements


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3 << 29, "1.5 GiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_human_bytes(count: int, text: str) -> None:
    """Sizes are read in binary units with one decimal."""
    assert human_bytes(count) == text


def test_adapters(tmp_path: Path) -> None:
    """Their matrices count, and what a step computes with them; there must be room for them."""
    path = ggufs.write_llama(tmp_path / "tiny.gguf")
    config, lora = load_config(path), load_adapter(write_lora(tmp_path / "a.gguf", path, 1), path)
    alone = estimate(config, Settings(), PLENTY)
    plan = estimate(config, Settings(), PLENTY, None, [lora, lora])
    held = 2 * (lora.size_bytes + 7_000 * lora.matrices)
    assert plan.adapter_bytes == held
    assert plan.total_bytes == alone.total_bytes + plan.adapter_bytes
    settings = Settings(ctx_size=512, parallel=1, cache_ram=0)
    room = memory(estimate(config, settings, PLENTY).total_bytes)
    plan_memory(config, settings, room)
    with pytest.raises(DoesNotFitError):
        plan_memory(config, settings, room, None, [lora])
    later = Settings(lora_dir=(str(tmp_path),), lora_memory=3)
    assert estimate(config, later, PLENTY, None, [lora, lora]).adapter_bytes == (
        plan.adapter_bytes + (3 << 20)
    )


@pytest.mark.parametrize("kind", SEEING)
def test_projectors(kind: str, tmp_path: Path) -> None:
    """The weights, what the largest picture takes, and a second process count."""
    model, file = SEEING[kind](tmp_path)
    config, projector = load_config(model), load_projector(file)
    alone = estimate(config, Settings(), PLENTY)
    plan = estimate(config, Settings(), PLENTY, projector=projector)
    assert plan.projector_bytes == projector.size_bytes + projector.compute_bytes
    held = 2 * plan.num_cells * 4 * config.embedding + ((256 + 2 * 160) << 20)
    assert plan.process_bytes == 2 * alone.process_bytes + held
    assert plan.total_bytes == alone.total_bytes + alone.process_bytes + plan.projector_bytes + held
    assert projector.compute_bytes > 4 * projector.patches * projector.inner > 0


@pytest.mark.parametrize(("count", "rank"), [(1, 16), (4, 16), (3, 64)])
def test_adapters_as_loaded(tmp_path: Path, count: int, rank: int) -> None:
    """With all of them in one step the sum is within 5 % of llama.cpp's buffers."""
    path = ggufs.write_llama(tmp_path / "m.gguf", encoding="F16", **LLAMA)
    config, every = load_config(path), ("attn_q", "attn_v", "attn_output", "ffn_up", "ffn_down")
    adapters = [
        load_adapter(
            lora_gguf(path, seed=seed, rank=rank, changed=every).write(tmp_path / f"{seed}.gguf"),
            path,
        )
        for seed in range(count)
    ]
    settings = Settings(ctx_size=2048, parallel=4)
    plan = estimate(config, settings, PLENTY, None, adapters)
    files = {bytes([number]) * 16: each.files[0] for number, each in enumerate(adapters)}
    with (
        library.capture_log() as lines,
        Weights(path, LoadOptions(n_gpu_layers=0, adapters=files)) as weights,
        Context(weights, ContextOptions(num_cells=2048, num_slots=4, unified=True)) as context,
    ):
        parts = (*weights.residency.buffers, *context.residency.kv_buffers)
        context.batch.key = adapter_key((digest, 1.0) for digest in files)
        context.batch.add_one(1, 0, 0)
        context.decode()
        told = [line for _, line in lines]
    found = sum(size for _, size in parts)
    found += sum(_told(line) for line in told if "LoRA buffer size" in line)
    found += _told(next(line for line in reversed(told) if "compute buffer size" in line))
    planned = plan.weights_bytes + plan.kv_bytes + plan.compute_bytes + plan.adapter_bytes
    assert planned == pytest.approx(found, rel=0.05)


def _told(line: str) -> int:
    return round(float(line.rpartition("=")[2].split()[0]) * 2**20)
