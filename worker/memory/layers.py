"""Which layers keep keys and values, which keep recurrent state, and how much of it.

llama.cpp decides this for each architecture (`llama_model::create_memory`, `llama-hparams.cpp`
and `src/models/`). An architecture that is not named here follows the general rule: each layer has
attention.
"""

from __future__ import annotations

from worker.model.architectures import SLIDING
from worker.model.config import ModelConfig

_RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
# Layers without KV heads are recurrent.
_HYBRID = frozenset(
    "jamba plamo2 granitehybrid lfm2 lfm2moe nemotron_h nemotron_h_moe kimi-linear "
    "kimi-k3 bailingmoe3 glm5-next".split()
)
# Every fourth layer is attention, the others are recurrent.
_INTERVAL = frozenset({"qwen3next", "qwen35", "qwen35moe", "qwen4exp", "minimax-01"})
_ATTENTION_INTERVAL = 4
_GEMMA3N_KV_LAYERS = 20


def kv_layers(config: ModelConfig) -> list[tuple[int, int]]:
    """(elements of a key, elements of a value) of one cell, for each layer that has a KV cache."""
    if config.architecture in _RECURRENT:
        return []
    count = config.layers - config.nextn_layers if config.nextn_layers else config.layers
    # The last layers may use the keys and values of earlier ones.
    shared = config.layers - _GEMMA3N_KV_LAYERS if config.architecture == "gemma3n" else 0
    count = min(count, config.layers - max(shared, config.shared_kv_layers))
    without = set(recurrent_layers(config)) if config.architecture != "falcon-h1" else set[int]()
    widths: list[tuple[int, int]] = []
    for layer, heads in enumerate(config.kv_heads[:count]):
        if layer in without or not heads:
            continue
        sliding = is_sliding(config, layer)
        key = config.key_length_swa if sliding else config.key_length
        value = config.value_length_swa if sliding else config.value_length
        widths.append((heads * key, heads * value))
    return widths


def is_sliding(config: ModelConfig, layer: int) -> bool:
    """Whether the file marks `layer` as one with a sliding window."""
    pattern = config.sliding_pattern
    if len(pattern) == 1:
        return layer % pattern[0] < pattern[0] - 1 if pattern[0] else True
    return bool(pattern[layer]) if layer < len(pattern) else False


def num_masks(config: ModelConfig) -> int:
    """Attention masks that a step holds."""
    if not kv_layers(config):
        return 0
    return 2 if config.sliding_window and config.architecture in SLIDING else 1


def recurrent_layers(config: ModelConfig) -> tuple[int, ...]:
    trunk = range(config.layers - config.nextn_layers)
    if config.architecture in _RECURRENT or config.architecture == "falcon-h1":
        return tuple(trunk)
    if config.architecture in _INTERVAL:
        return tuple(i for i in trunk if (i + 1) % _ATTENTION_INTERVAL)
    if config.architecture in _HYBRID:
        mixed = config.architecture.startswith("nemotron")
        return tuple(
            i for i in trunk if not config.kv_heads[i] and not (mixed and config.feed_forward[i])
        )
    return ()


def recurrent_state(config: ModelConfig) -> int:
    """Elements (F32) of one recurrent layer's state for one sequence."""
    sizes = config.recurrent
    if config.architecture == "minimax-01":
        return config.key_length**2 * config.max_heads
    if sizes is None:
        return 0
    if sizes.wkv_head_size:  # RWKV; without the key two tokens are shifted
        return config.embedding * (sizes.wkv_head_size + (sizes.token_shift or 2))
    if sizes.short_conv:  # LFM2
        return config.embedding * (sizes.short_conv - 1) + sizes.state_size * sizes.inner_size
    if sizes.kda_head_dim:  # Kimi
        inner = config.max_heads * sizes.kda_head_dim
        return inner * (3 * (sizes.conv_kernel - 1 if sizes.conv_kernel else 3)) + (
            inner * sizes.kda_head_dim
        )
    convolution = max(sizes.conv_kernel - 1, 0) * (
        sizes.inner_size + 2 * sizes.groups * sizes.state_size
    )
    return convolution + sizes.state_size * sizes.inner_size
