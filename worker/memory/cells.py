"""The KV cells of a model's layers, and the types that they can be stored in."""

from __future__ import annotations

from worker.errors import UsageError
from worker.gguf.quant import ENCODINGS
from worker.model.architectures import WITHOUT_FLASH
from worker.model.config import ModelConfig
from worker.settings import Settings

CACHE_ENCODINGS = {encoding.name.lower(): encoding for encoding in ENCODINGS.values()}


def cell_widths(config: ModelConfig) -> list[tuple[int, int]]:
    """(elements of a key, elements of a value) of one cell, for each layer that may have some."""
    return [widths for widths in layer_widths(config) if any(widths)]


def layer_widths(config: ModelConfig) -> list[tuple[int, int]]:
    """The same of each layer, the first ones: later ones have no cells.

    Layers that guess tokens have none, nor have the last ones where they use those of earlier ones.
    """
    if config.recurrent and config.recurrent.wkv_head_size:
        return []
    count = config.layers - max(config.nextn_layers, config.shared_kv_layers)
    lengths = ((heads, *config.head_lengths(n)) for n, heads in enumerate(config.kv_heads[:count]))
    return [(heads * key, heads * value) for heads, key, value in lengths]


def is_fused(config: ModelConfig, flash_attn: str) -> bool:
    """Whether attention runs in the fused kernel. On the CPU `auto` means on."""
    return flash_attn != "off" and config.architecture not in WITHOUT_FLASH


def check_cache_types(config: ModelConfig, settings: Settings) -> None:
    """Raise UsageError where this model's keys or values cannot be stored in the types asked for.

    A quantised type stores whole blocks: q8_0 32 elements each. The fused kernel reads one head
    at a time, so a head must be whole blocks; llama.cpp refuses others, but only once the weights
    are loaded. Without that kernel a row of all heads must be; llama.cpp aborts on others.
    """
    widths = cell_widths(config)
    if not widths:
        return
    if is_fused(config, settings.flash_attn):
        heads = [(config.key_length, config.value_length)]
        heads += [config.head_lengths(layer) for layer in range(config.layers)]
        what, keys, values = "heads", {key for key, _ in heads}, {value for _, value in heads}
    else:
        what, keys, values = "rows", {key for key, _ in widths}, set[int]()
        if CACHE_ENCODINGS[settings.cache_type_v].quantized:
            quantized = f"--cache-type-v {settings.cache_type_v}"
            if settings.flash_attn == "off":
                raise UsageError(
                    f"{quantized} needs flash attention, which --flash-attn off forbids.",
                    hint="Leave out one of them.",
                )
            raise UsageError(
                f"{quantized} needs flash attention, which this model runs without.",
                hint="Use --cache-type-v f16.",
            )
    for option, cache_type, lengths in (
        ("--cache-type-k", settings.cache_type_k, keys),
        ("--cache-type-v", settings.cache_type_v, values),
    ):
        block = CACHE_ENCODINGS[cache_type].block
        for length in sorted(lengths):
            if length % block:
                raise UsageError(
                    f"{option} {cache_type} needs {what} of a multiple of {block} elements, and "
                    f"this model's have {length}.",
                    hint=f"Use {option} f16.",
                )
