"""Changes of the numbers that describe the model: sizes, heads, rotation, experts, states."""

from __future__ import annotations

from random import Random

from checks.fuzz.mutators.header import Structure
from checks.fuzz.mutators.values import FLOATS, NUMBERS, any_key, element, near
from tests.support.models.ggufs import ARR, BOOL, F32, I32, STR, U32, Gguf, Key, text

# Keys that llama.cpp reads of some architecture. Those that the file lacks are tried too.
COUNTS = (
    "block_count", "context_length", "embedding_length", "embedding_length_out",
    "embedding_length_per_layer_input", "feed_forward_length", "vocab_size", "pooling_type",
    "leading_dense_block_count", "nextn_predict_layers", "full_attention_interval",
    "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.value_length", "attention.key_length_mla", "attention.value_length_mla",
    "attention.key_length_swa", "attention.value_length_swa", "attention.q_lora_rank",
    "attention.kv_lora_rank", "attention.sliding_window", "attention.sliding_window_pattern",
    "attention.shared_kv_layers", "attention.group_norm_groups", "attention.decay_lora_rank",
    "attention.iclr_lora_rank", "attention.value_residual_mix_lora_rank",
    "attention.gate_lora_rank", "attention.temperature_length", "attention.indexer.head_count",
    "attention.indexer.key_length", "attention.indexer.top_k", "attention.relative_buckets_count",
    "attention.chunk_size",
    "rope.dimension_count", "rope.dimension_count_swa", "rope.scaling.original_context_length",
    "expert_count", "expert_used_count", "expert_shared_count", "expert_group_count",
    "expert_group_used_count", "expert_feed_forward_length", "expert_shared_feed_forward_length",
    "expert_gating_func", "experts_per_group", "moe_every_n_layers", "interleave_moe_layer_step",
    "ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank",
    "ssm.group_count", "wkv.head_size", "token_shift_count", "time_mix_extra_dim",
    "time_decay_extra_dim", "rescale_every_n_layers", "shortconv.l_cache", "kda.head_dim",
    "n_deepstack_layers", "altup.num_inputs", "altup.active_idx", "classifier.output_labels",
)  # fmt: skip
REALS = (
    "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon",
    "attention.group_norm_epsilon", "attention.scale", "attention.clamp_kqv",
    "attention.max_alibi_bias", "attention.output_scale", "attention.temperature_scale",
    "rope.freq_base", "rope.freq_base_swa", "rope.scale_linear", "rope.scaling.factor",
    "rope.scaling.attn_factor", "rope.scaling.alpha", "rope.scaling.yarn_log_multiplier",
    "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "logit_scale",
    "residual_scale", "embedding_scale", "attn_logit_softcapping", "final_logit_softcapping",
    "router_logit_softcapping", "expert_weights_scale", "expert_group_scale",
)  # fmt: skip
FLAGS = ("attention.causal", "use_parallel_residual", "rope.scaling.finetuned",
         "expert_weights_norm", "swin_norm", "ssm.dt_b_c_rms")  # fmt: skip
_PER_LAYER = ("attention.head_count", "attention.head_count_kv", "feed_forward_length",
              "expert_used_count", "expert_feed_forward_length",
              "attention.sliding_window_pattern", "swiglu_clamp_exp")  # fmt: skip
_SAMPLING = ("temp", "top_k", "top_p", "min_p", "xtc_probability", "xtc_threshold",
             "penalty_last_n", "penalty_repeat", "mirostat", "mirostat_tau", "mirostat_eta",
             "sequence")  # fmt: skip


def _architecture(gguf: Gguf) -> str:
    key = gguf.keys.get("general.architecture")
    value = key.value if isinstance(key, Key) else ""
    return value if isinstance(value, str) else ""


def own_number(gguf: Gguf, draw: Random) -> str:
    """A number of the model near to what it was, or at an edge."""
    prefix = _architecture(gguf) + "."
    names = [str(n) for n, k in gguf.keys.items() if str(n).startswith(prefix)
             and isinstance(k, Key) and k.type != STR]  # fmt: skip
    if not names:
        return "nothing"
    name = draw.choice(names)
    old = gguf.keys[name]
    assert isinstance(old, Key)
    gguf.keys[name] = near(old, draw)
    return f"{name} = {str(gguf.keys[name])[:80]}"


def count(gguf: Gguf, draw: Random) -> str:
    """Any count that llama.cpp reads."""
    name, value = f"{_architecture(gguf)}.{draw.choice(COUNTS)}", draw.choice(NUMBERS)
    gguf.keys[name] = Key(U32, value)
    return f"{name} = {value}"


def real(gguf: Gguf, draw: Random) -> str:
    """Any real number that llama.cpp reads."""
    name, value = f"{_architecture(gguf)}.{draw.choice(REALS)}", draw.choice(FLOATS)
    gguf.keys[name] = Key(F32, value)
    return f"{name} = {value}"


def flag(gguf: Gguf, draw: Random) -> str:
    """Any truth value that llama.cpp reads."""
    name, value = f"{_architecture(gguf)}.{draw.choice(FLAGS)}", draw.randrange(2)
    gguf.keys[name] = Key(BOOL, value)
    return f"{name} = {value}"


def other_type(gguf: Gguf, draw: Random) -> str:
    """A key of the model with a value of any type."""
    name = f"{_architecture(gguf)}.{draw.choice((*COUNTS, *REALS, *FLAGS))}"
    gguf.keys[name] = any_key(draw)
    return f"{name} = {str(gguf.keys[name])[:80]}"


def per_layer(gguf: Gguf, draw: Random) -> str:
    """A number for each layer, or for one more or one less."""
    arch = _architecture(gguf)
    layers = gguf.keys.get(f"{arch}.block_count")
    length = int(layers.value) if isinstance(layers, Key) and isinstance(layers.value, int) else 2
    length = max(0, min(length, 600) + draw.choice((0, 0, 0, 0, -1, 1)))
    name, item = f"{arch}.{draw.choice(_PER_LAYER)}", draw.choice((U32, I32, BOOL))
    small = [draw.choice((0, 1, 2, 4, 8, 16, 32, 96)) for _ in range(length)]
    values = [v % 2 for v in small] if item == BOOL else small
    if draw.random() < 0.2 and values:
        values[draw.randrange(length)] = element(item, draw)
    gguf.keys[name] = Key(ARR, values, item)
    return f"{name} = {values[:8]}"


def rotation(gguf: Gguf, draw: Random) -> str:
    """How positions are rotated."""
    arch = _architecture(gguf)
    kinds = ("none", "linear", "yarn", "longrope", "llama3", "foo", "")
    if draw.random() < 0.5:
        gguf.keys[f"{arch}.rope.scaling.type"] = text(draw.choice(kinds))
        gguf.keys[f"{arch}.rope.scaling.factor"] = Key(F32, draw.choice(FLOATS))
        if draw.random() < 0.5:
            value = Key(U32, draw.choice(NUMBERS))
            gguf.keys[f"{arch}.rope.scaling.original_context_length"] = value
        return f"scaling {gguf.keys[f'{arch}.rope.scaling.type']}"
    item = draw.choice((I32, U32))
    values = [
        draw.choice((0, 1, 2, 4, 8, 16, 32, 2**31 - 1)) for _ in range(draw.choice((3, 4, 4, 5)))
    ]
    gguf.keys[f"{arch}.rope.dimension_sections"] = Key(ARR, values, item)
    return f"sections {values}"


def architecture(gguf: Gguf, draw: Random) -> str:
    """The same model under the name of another architecture, with its keys."""
    old = _architecture(gguf)
    new = draw.choice(("llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "falcon",
                       "mamba", "rwkv6", "rwkv7", "qwen2moe", "qwen3moe", "deepseek2", "gpt-oss",
                       "starcoder2", "stablelm", "olmo2", "command-r", "granite", "granitehybrid",
                       "lfm2", "jamba", "gpt2", "bloom", "mpt", "minicpm3", "qwen2vl", "llama4",
                       "gemma3n", "plamo2", "bert", "t5", "dbrx", "grok", "chatglm", "nemotron_h",
                       "qwen35", "glm4moe", "mistral3", "exaone4", "smollm3"))  # fmt: skip
    gguf.keys["general.architecture"] = text(new)
    for name in [n for n in gguf.keys if str(n).startswith(old + ".")]:
        gguf.keys[new + str(name).removeprefix(old)] = gguf.keys.pop(name)
    return f"{old} as {new}"


def sampling(gguf: Gguf, draw: Random) -> str:
    """What the model's makers recommend."""
    name = f"general.sampling.{draw.choice(_SAMPLING)}"
    gguf.keys[name] = any_key(draw)
    return f"{name} = {str(gguf.keys[name])[:80]}"


NUMBERS_OF_MODEL: dict[str, Structure] = {
    "own-number": own_number, "count": count, "real": real, "flag": flag,
    "other-type": other_type, "per-layer": per_layer, "rotation": rotation,
    "architecture": architecture, "sampling": sampling,
}  # fmt: skip
