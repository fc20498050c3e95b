"""Files of architectures whose graphs take something for granted: each ended the process."""

from __future__ import annotations

from pathlib import Path

from checks.fuzz.corpus import corpus
from tests.support.cases import for_each
from tests.support.models.ggufs import ARR, BOOL, I32, TYPE_BY_NAME, U32, Gguf, Key, f32, u32
from tests.support.models.spoiled import Change, dropped, keyed, refused
from worker.model.config import load_config


def stored_as(name: str, kind: str) -> Change:
    """The file with a tensor in another encoding."""

    def change(g: Gguf) -> None:
        tensor = g.tensor(name)
        tensor.type = TYPE_BY_NAME[kind]
        tensor.data = tensor.data[: len(tensor.data) // (2 if kind in ("F16", "BF16") else 1)]

    return change


CASES: list[tuple[str, str, Change]] = [
    ("deepseek2", "BAD_VALUE", dropped("deepseek2.attention.head_count_kv")),
    ("deepseek2", "BAD_VALUE", dropped("deepseek2.rope.dimension_count")),
    ("deepseek2", "BAD_VALUE", dropped("deepseek2.attention.key_length")),
    ("deepseek2", "BAD_VALUE", keyed("deepseek2.attention.value_length", u32(16))),
    ("deepseek2", "MISSING_KEY", keyed("deepseek2.attention.temperature_scale", f32(0.1))),
    ("glm4moe", "BAD_VALUE", keyed("glm4moe.expert_gating_func", u32(8))),
    ("granitehybrid", "MISSING_TENSOR", dropped("blk.0.ssm_conv1d.bias")),
    ("qwen35", "MISSING_TENSOR", dropped("blk.0.attn_gate.weight")),
    ("qwen35moe", "MISSING_TENSOR", dropped("blk.1.attn_qkv.weight")),
    ("gemma3", "BAD_VALUE", keyed("gemma3.attention.sliding_window", u32(2**30))),
    ("gemma3", "BAD_VALUE", keyed("gemma3.attention.sliding_window_pattern", u32(1))),
    ("gemma3-array", "BAD_VALUE",
     keyed("gemma3.attention.sliding_window_pattern", Key(ARR, [0, 0, 0], BOOL))),
    ("gemma3", "BAD_VALUE", keyed("gemma3.rope.dimension_count_swa", u32(0))),
    ("gemma3", "BAD_VALUE", keyed("gemma3.rope.dimension_count_swa", u32(3))),
    ("gemma3", "BAD_VALUE", keyed("gemma3.rope.dimension_count_swa", u32(64))),
    ("glm4moe", "BAD_VALUE",
     keyed("glm4moe.rope.dimension_sections", Key(ARR, [16, 2, 16, 0], I32))),
    ("glm4moe", "BAD_VALUE",
     keyed("glm4moe.rope.dimension_sections", Key(ARR, [4, -2, 4, 0], I32))),
    ("qwen3", "BAD_VALUE", keyed("qwen3.attention.value_length", u32(8))),
    ("lfm2", "BAD_VALUE", keyed("lfm2.rope.dimension_count", u32(0))),
    ("lfm2", "BAD_VALUE", keyed("lfm2.shortconv.l_cache", u32(1))),
    ("granitehybrid", "BAD_VALUE", keyed("granitehybrid.ssm.inner_size", u32(64))),
    ("granitehybrid", "BAD_VALUE", keyed("granitehybrid.ssm.group_count", u32(3))),
    ("qwen35", "BAD_VALUE", keyed("qwen35.ssm.group_count", u32(3))),
    ("qwen35moe", "BAD_VALUE", keyed("qwen35moe.full_attention_interval", u32(0))),
    ("mamba", "BAD_VALUE", keyed("mamba.ssm.state_size", u32(2**31))),
    ("rwkv7", "BAD_VALUE", keyed("rwkv7.wkv.head_size", u32(128))),
    ("rwkv7", "BAD_VALUE", keyed("rwkv7.token_shift_count", u32(1))),
    ("mamba", "TENSOR_TYPE", stored_as("blk.0.ssm_conv1d.weight", "F16")),
    ("lfm2", "TENSOR_TYPE", stored_as("blk.0.shortconv.conv.weight", "BF16")),
    ("lfm2", "TENSOR_TYPE", stored_as("blk.1.attn_q_norm.weight", "I32")),
    ("rwkv7", "TENSOR_TYPE", stored_as("blk.0.time_mix_lerp_fused.weight", "F16")),
    ("gemma-embedding", "BAD_VALUE", dropped("gemma-embedding.attention.sliding_window_pattern")),
    ("gemma-embedding", "BAD_VALUE",
     keyed("gemma-embedding.attention.sliding_window_pattern", Key(ARR, [1, 1, 1], U32))),
    ("gemma-embedding", "BAD_VALUE",
     keyed("gemma-embedding.attention.sliding_window_pattern", u32(1))),
    ("modern-bert", "BAD_VALUE", keyed("modern-bert.attention.sliding_window_pattern", u32(0))),
    ("jina-bert-v3", "BAD_VALUE", keyed("jina-bert-v3.embedding_length_out", u32(96))),
    ("llama", "BAD_VALUE", keyed("llama.embedding_length_out", u32(96))),
    ("lfm2-window", "ENCODER_ONLY", keyed("lfm2.attention.causal", Key(BOOL, 0))),
]  # fmt: skip


@for_each(("seed", "code", "change"), CASES)
def test_what_no_graph_can_be_built_of(
    seed: str, code: str, change: Change, tmp_path: Path
) -> None:
    """The file is refused with its own code, one sentence and the next step."""
    (model,) = corpus()[seed].parts()
    change(model)
    purpose = "generate" if code == "ENCODER_ONLY" else "serve"
    assert refused(model.write(tmp_path / "m.gguf"), purpose=purpose).code == code


def test_a_window_in_some_layers(tmp_path: Path) -> None:
    """A list of layers with a window, as Gemma 3 files carry one, is taken."""
    (model,) = corpus()["gemma3-array"].parts()
    model.keys["gemma3.attention.sliding_window_pattern"] = Key(ARR, [1, 0, 0], U32)
    assert load_config(model.write(tmp_path / "m.gguf")).sliding_pattern == (1, 0, 0)
