"""Types and ranges of what a file says about the shape of its model."""

from __future__ import annotations

import math

import numpy as np

from worker.gguf.fields import Fields
from worker.gguf.header import TYPES
from worker.model.architectures import (
    EMBEDDERS,
    EQUAL_HEADS,
    EXPERTS_ONLY,
    FULL_ROPE,
    LAYER_NORM,
    NO_ROPE,
    RMS_NORM,
    SECTION_ROPE,
    SLIDING,
    UNIFORM,
)

MAX_LAYERS = 512  # LLAMA_MAX_LAYERS
MAX_EXPERTS = 1024  # LLAMA_MAX_EXPERTS
MAX_GATING = 4  # LLAMA_EXPERT_GATING_FUNC_TYPE_SQRT_SOFTPLUS
MAX_CONTEXT = 2**31 - 1  # positions are int32

_ROPE_SCALING = ("none", "linear", "yarn", "longrope")
# ggml's vector kernel for them has no loop for the remainder, so it would read past the end.
_WKV7, _WKV7_STEP = frozenset({"rwkv7", "arwkv7"}), 64
# All of their layers guess tokens.
_ONLY_NEXTN = frozenset({"gemma4-assistant"})
_NO_EXPERTS_BELOW_2 = frozenset({"hunyuan_vl", "hunyuan-dense"})
# Keys that llama.cpp reads for every architecture, with the one type that it accepts.
_STRICT: tuple[tuple[str, str], ...] = (
    *((key, "UINT32") for key in (
        ".block_count", ".context_length", ".embedding_length", ".embedding_length_out",
        ".vocab_size", ".pooling_type", ".nextn_predict_layers", ".expert_count",
        ".expert_group_count", ".expert_group_used_count",
        ".rope.scaling.original_context_length",
        ".attention.key_length", ".attention.value_length", ".attention.key_length_swa",
        ".attention.value_length_swa", ".rope.dimension_count", ".rope.dimension_count_swa",
        "general.file_type", "general.quantization_version",
    )),
    *((key, "FLOAT32") for key in (
        ".rope.freq_base", ".rope.scaling.factor", ".rope.scaling.attn_factor",
        ".rope.scaling.alpha", ".attention.layer_norm_epsilon",
        ".attention.layer_norm_rms_epsilon",
    )),
    *((key, "STRING") for key in (".rope.scaling.type", "general.name")),
    *((key, "BOOL") for key in (".attention.causal", ".rope.scaling.finetuned")),
)  # fmt: skip
_PER_LAYER = (
    ".attention.head_count",
    ".attention.head_count_kv",
    ".feed_forward_length",
    ".expert_used_count",
)
_ABOVE_ZERO = (
    ".rope.freq_base",
    ".rope.freq_base_swa",
    ".rope.scaling.factor",
    ".attention.layer_norm_epsilon",
    ".attention.layer_norm_rms_epsilon",
    ".attention.group_norm_epsilon",
)


def _check_types(fields: Fields) -> None:
    for key, kind in _STRICT:
        if key in fields and fields.header.types[fields.full(key)] != TYPES[kind]:
            fields.wrong_type(key, kind)
    for key in _PER_LAYER:
        value = fields.get(key)
        if value is None or fields.header.types[fields.full(key)] == TYPES["UINT32"]:
            continue
        if not isinstance(value, np.ndarray) or value.dtype.name not in ("int32", "uint32", "bool"):
            fields.wrong_type(key, "UINT32 or an array of them")


def _check_floats(fields: Fields) -> None:
    for key, value in fields.header.keys.items():
        used = key.startswith((fields.architecture + ".", "general.sampling."))
        if used and isinstance(value, float) and not math.isfinite(value):
            fields.bad(key, value, "finite")
    for key in _ABOVE_ZERO:
        value = fields.number(key)
        if value is not None and value <= 0:
            fields.bad(key, value, "above 0")


def check_hyperparameters(fields: Fields) -> None:
    """Raise ModelFileError where llama.cpp would refuse the numbers or abort on them."""
    _check_types(fields)
    _check_floats(fields)
    if not fields.header.tensors:
        # A vocabulary says little about a model. But nothing is allocated from an absurd number.
        if ".block_count" in fields:
            _whole(fields, ".block_count", 1, MAX_LAYERS)
        return
    layers = _whole(fields, ".block_count", 1, MAX_LAYERS)
    embedding = _whole(fields, ".embedding_length", 1, 2**31 - 1)
    _whole(fields, ".context_length", 1, MAX_CONTEXT)
    for key in _PER_LAYER:
        fields.per_layer(key, layers)
    nextn = fields.count(".nextn_predict_layers") or 0
    if nextn >= layers and fields.architecture not in _ONLY_NEXTN:
        fields.bad(".nextn_predict_layers", nextn, f"below the {layers} layers")
    if (fields.count(".pooling_type") or 0) > 4:
        fields.bad(".pooling_type", fields.count(".pooling_type"), "0 to 4")
    scaling = fields.text(".rope.scaling.type")
    if scaling is not None and scaling not in _ROPE_SCALING:
        fields.bad(".rope.scaling.type", scaling, "one of " + ", ".join(_ROPE_SCALING))
    if fields.architecture in SECTION_ROPE and ".rope.dimension_sections" not in fields:
        fields.refuse_missing(".rope.dimension_sections")
    _check_experts(fields, layers)
    _check_heads(fields, layers, embedding)
    head = fields.count(".wkv.head_size") or 0
    if fields.architecture in _WKV7 and head % _WKV7_STEP:
        fields.bad(".wkv.head_size", head, f"a multiple of {_WKV7_STEP}")
    if fields.architecture in UNIFORM or fields.architecture in EMBEDDERS:
        _check_attention(fields, layers, embedding)


def _whole(fields: Fields, key: str, least: int, most: int) -> int:
    value = fields.count(key)
    if value is None:
        fields.refuse_missing(key)
    if not least <= value <= most:
        fields.bad(key, value, f"{least} to {most}")
    return value


def _check_experts(fields: Fields, layers: int) -> None:
    """What llama.cpp asserts about experts, for every architecture."""
    count = fields.count(".expert_count") or 0
    used = max(fields.per_layer(".expert_used_count", layers) or (0,))
    groups = fields.count(".expert_group_count") or 0
    groups_used = fields.count(".expert_group_used_count") or 0
    if not count and fields.architecture in EXPERTS_ONLY:
        fields.refuse_missing(".expert_count")
    if count <= 1 and fields.architecture in _NO_EXPERTS_BELOW_2:
        return
    if count > MAX_EXPERTS:
        fields.bad(".expert_count", count, f"at most {MAX_EXPERTS}")
    if used > count or (count and not used):
        fields.bad(".expert_used_count", used, f"1 to {count}" if count else "0 without experts")
    gating = fields.count(".expert_gating_func") or 0
    if gating > MAX_GATING:
        fields.bad(".expert_gating_func", gating, f"0 to {MAX_GATING}")
    if groups and groups >= count:
        fields.bad(".expert_group_count", groups, f"below the {count} experts")
    if groups > 1 and count % groups:
        fields.bad(".expert_group_count", groups, f"a divisor of the {count} experts")
    if groups > 1 and not 0 < groups_used < groups:
        fields.bad(".expert_group_used_count", groups_used, f"1 to {groups - 1}")


def _check_heads(fields: Fields, layers: int, embedding: int) -> None:
    """In a layer with attention KV heads divide heads, and the rotated part fits a head."""
    heads = fields.per_layer(".attention.head_count", layers) or (0,) * layers
    kv_heads = fields.per_layer(".attention.head_count_kv", layers) or heads
    for head, kv_head in zip(heads, kv_heads, strict=True):
        if head and kv_head and head % kv_head:
            fields.bad(".attention.head_count_kv", kv_head, f"a divisor of {head}")
    _check_rope(fields, heads[0], embedding)
    if heads[0] and (fields.architecture in EQUAL_HEADS or fields.architecture in EMBEDDERS):
        _check_lengths(fields, embedding // heads[0])


def _check_lengths(fields: Fields, default: int) -> None:
    """Keys and values are equally long."""
    if ".attention.key_length_swa" in fields or ".attention.value_length_swa" in fields:
        return  # those of the first layer count, which may have a window
    key, value = (
        default if (given := fields.count(f".attention.{part}_length")) is None else given
        for part in ("key", "value")
    )
    if key != value:
        fields.bad(".attention.value_length", value, f"the length of a key, {key}")


def _check_attention(fields: Fields, layers: int, embedding: int) -> None:
    """Heads, rotation and norms of architectures whose layers are all alike."""
    arch = fields.architecture
    heads = fields.per_layer(".attention.head_count", layers)
    if heads is None:
        fields.refuse_missing(".attention.head_count")
    kv_heads = fields.per_layer(".attention.head_count_kv", layers) or heads
    if not 1 <= min(heads) <= max(heads) <= embedding:
        wrong = min(heads) or max(heads)
        fields.bad(".attention.head_count", wrong, f"1 to {embedding}")
    if not min(kv_heads):
        fields.bad(".attention.head_count_kv", 0, f"a divisor of {heads[0]}")
    if len(set(heads)) > 1 or len(set(kv_heads)) > 1:
        fields.bad(".attention.head_count", "different by layer", "the same in each layer")
    if ".attention.key_length" not in fields and embedding % heads[0]:
        fields.bad(".attention.head_count", heads[0], f"a divisor of {embedding}")
    lengths = [
        embedding // heads[0] if (given := fields.count(key)) is None else given
        for key in (".attention.key_length", ".attention.value_length")
    ]
    for key, length in zip(
        (".attention.key_length", ".attention.value_length"), lengths, strict=True
    ):
        if not 0 < length <= 65_536:
            fields.bad(key, length, "1 to 65536")
    if not fields.count(".expert_count"):
        inner = fields.per_layer(".feed_forward_length", layers)
        if inner is None:
            fields.refuse_missing(".feed_forward_length")
        if not min(inner):
            fields.bad(".feed_forward_length", 0, "above 0")
    for group, key in (
        (RMS_NORM, ".attention.layer_norm_rms_epsilon"),
        (LAYER_NORM, ".attention.layer_norm_epsilon"),
    ):
        if arch in group and key not in fields:
            fields.refuse_missing(key)


def _check_rope(fields: Fields, heads: int, embedding: int) -> None:
    """The rotated part of a head; native code asserts that it is even and no longer than one."""
    rotated = fields.count(".rope.dimension_count")
    if not heads:
        return
    length = fields.count(".attention.key_length")
    length = embedding // heads if length is None else length
    _check_sections(fields, length)
    windowed = fields.count(".rope.dimension_count_swa")
    if windowed is not None and fields.architecture in SLIDING:
        in_window = fields.count(".attention.key_length_swa")
        limit = length if in_window is None else in_window
        if not 0 < windowed <= limit or windowed % 2:
            fields.bad(".rope.dimension_count_swa", windowed, f"even, 2 to {limit}")
    if rotated is None:
        return
    if fields.architecture in FULL_ROPE and rotated != length:
        fields.bad(".rope.dimension_count", rotated, f"{length}, the length of a head")
    # Native code goes round for ever where it is to rotate nothing.
    unrotated = fields.architecture in NO_ROPE or fields.flag(".rope.scaling.finetuned") is False
    if rotated > length or not (rotated or unrotated):
        fields.bad(".rope.dimension_count", rotated, f"1 to {length}")
    if rotated % 2:
        fields.bad(".rope.dimension_count", rotated, "even")


def _check_sections(fields: Fields, length: int) -> None:
    """Sections of a rotation by several positions fit a head; native code divides by their sum."""
    key = ".rope.dimension_sections"
    sections = fields.numbers(key)
    needed = fields.architecture in SECTION_ROPE
    if sections and (min(sections) < 0 or not needed <= sum(sections) <= length):
        fields.bad(key, list(sections), f"from 0 on, in all {int(needed)} to {length}")


_INT32_MAX = 2**31 - 1
# Key -> lowest and highest, as `engine/sampling.py` has them for requests.
RANGES: dict[str, tuple[float, float]] = {
    "temp": (0, 100),
    "top_k": (-1, _INT32_MAX),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "xtc_probability": (0, 1),
    "xtc_threshold": (0, 1),
    "penalty_last_n": (-1, _INT32_MAX),
    "penalty_repeat": (1e-3, 100),
    "mirostat": (0, 2),
    "mirostat_tau": (0, 100),
    "mirostat_eta": (0, 1),
}


def check_sampling_defaults(fields: Fields) -> None:
    """Raise BAD_VALUE for a recommendation out of range: requests without it would all fail."""
    for name, (low, high) in RANGES.items():
        key = f"general.sampling.{name}"
        value = fields.number(key)
        if value is not None and not low <= value <= high:  # NaN is in no range
            fields.bad(key, value, f"{low:g} to {high:g}")
