"""What llama.cpp's graphs take for granted of a file that its loader lets pass.

Where it is not there, native code ends the process: at an assertion, or at a tensor that is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from worker.gguf.fields import Fields
from worker.gguf.header import RECONVERT, refuse
from worker.model.architectures import EMBEDDERS, SLIDING

_MAMBA2 = (r"(blk\.\d+\.)ssm_conv1d\.weight", ("ssm_conv1d.bias",))
_GATED_DELTA = (r"(blk\.\d+\.)ssm_conv1d\.weight", ("attn_qkv.weight", "attn_gate.weight"))
# Architecture -> a tensor, and those that a block with it must have too.
_TOGETHER: dict[str, tuple[str, tuple[str, ...]]] = {
    "falcon-h1": _MAMBA2,
    "granitehybrid": _MAMBA2,
    "nemotron_h": _MAMBA2,
    "nemotron_h_moe": _MAMBA2,
    "qwen35": _GATED_DELTA,
    "qwen35moe": _GATED_DELTA,
}
# Encoder with a window -> layers of its pattern, and the one among them that looks at all.
_PATTERNS = {"gemma-embedding": (6, -1), "modern-bert": (3, 0)}
# Their vectors have another width than a token's.
_OTHER_WIDTH = frozenset({"gemma4-assistant", "wavtokenizer-dec"})
_LATENT = frozenset({"deepseek2"})
# Their inner size is twice the width of the model.
_TWICE = frozenset({"granitehybrid", "jamba", "mamba"})
_WITH_MAMBA2 = frozenset({"falcon-h1", "granitehybrid", "mamba2", "nemotron_h", "nemotron_h_moe"})
_WITH_GATED_DELTA = frozenset({"qwen35", "qwen35moe", "qwen3next"})
_SHORT_CONV = frozenset({"lfm2", "lfm2moe"})
_TWO_SHIFTS = frozenset({"rwkv6", "rwkv7"})
_MAX = 2**24  # of any size of a state: products of two fit an int64, and no model comes near
_SIZES = tuple(
    ".ssm.conv_kernel .ssm.inner_size .ssm.state_size .ssm.time_step_rank .ssm.group_count "
    ".wkv.head_size .shortconv.l_cache".split()
)
_FEWEST_BUCKETS = 4  # of T5's distances; native code divides by their quarter
_MAX_WINDOW = 2**24  # tokens; beyond, native code multiplies it past 32 bits


def check_graph(fields: Fields) -> None:
    """Raise ModelFileError where a graph of the file's architecture could not be built."""
    names = {tensor.name for tensor in fields.header.tensors}
    _check_together(fields, names)
    check_recurrence(fields)
    _check_width(fields, names)
    if fields.architecture in _LATENT:
        _check_latent(fields)
    if fields.architecture in SLIDING:
        _check_window(fields)
    if fields.architecture in EMBEDDERS:
        _check_embedder(fields)
    if fields.architecture in _PATTERNS:
        _check_pattern(fields, *_PATTERNS[fields.architecture])


def _check_width(fields: Fields, names: Collection[str]) -> None:
    """A vector is read with this width from the last layer's rows."""
    key, width = ".embedding_length_out", fields.count(".embedding_length")
    given = fields.count(key)
    if given in (None, 0, width) or fields.architecture in _OTHER_WIDTH:
        return
    if "dense_2.weight" not in names:
        fields.bad(key, given, f"{width}, the width")


def _check_pattern(fields: Fields, period: int, whole: int) -> None:
    """Both kinds of layers are there: llama.cpp fills a mask for each."""
    pattern, layers = ".attention.sliding_window_pattern", fields.count(".block_count") or 0
    if not fields.count(".attention.sliding_window") and fields.architecture == "modern-bert":
        return
    numbers = fields.numbers(pattern)
    if pattern in fields and not isinstance(fields.get(pattern), int):
        slides = [number != 0 for number in numbers[:layers]]
    else:
        period = numbers[0] if numbers else period
        slides = [period == 0 or layer % period != whole % period for layer in range(layers)]
    if len(set(slides)) < 2:
        fields.bad(pattern, "of layers of one kind", "some with a window and some without")


def _check_together(fields: Fields, names: Collection[str]) -> None:
    pattern, needed = _TOGETHER.get(fields.architecture, ("(?!)", ()))
    for name in names:
        match = re.fullmatch(pattern, name)
        for other in needed if match else ():
            if match and match[1] + other not in names:
                raise refuse(
                    "MISSING_TENSOR",
                    f"The tensor {match[1]}{other} is missing.",
                    field=match[1] + other,
                    hint="A part of the model is missing; get it again.",
                )


def _check_latent(fields: Fields) -> None:
    """Multi-head latent attention: one KV head whose key is the latent vector and the rotation."""
    layers = fields.count(".block_count") or 0
    heads = (fields.per_layer(".attention.head_count", layers) or (1,))[0] or 1
    head = (fields.count(".embedding_length") or 0) // heads
    key = _or(fields, ".attention.key_length", head)
    rotated = _or(fields, ".rope.dimension_count", key)
    per_head = fields.count(".attention.key_length_mla") or 0
    rank = fields.count(".attention.kv_lora_rank") or 0
    if rotated >= (per_head or key):
        fields.bad(".rope.dimension_count", rotated, f"below {per_head or key}")
    length = ".attention.temperature_length"
    if fields.number(".attention.temperature_scale") and not fields.count(length):
        fields.refuse_missing(length)  # positions are divided by it
    if not per_head or not fields.count(".attention.value_length_mla"):
        return
    if key != rank + rotated:
        fields.bad(".attention.key_length", key, f"{rank} + {rotated}, latent and rotated")
    if (value := _or(fields, ".attention.value_length", head)) != rank:
        fields.bad(".attention.value_length", value, f"{rank}, as kv_lora_rank")
    for kv_heads in fields.per_layer(".attention.head_count_kv", layers) or (heads,):
        if kv_heads != 1:
            fields.bad(".attention.head_count_kv", kv_heads, "1 with latent attention")


def _check_window(fields: Fields) -> None:
    """Where there is a window some layer must look through it."""
    window = fields.count(".attention.sliding_window") or 0
    pattern = ".attention.sliding_window_pattern"
    if window > _MAX_WINDOW:
        fields.bad(".attention.sliding_window", window, f"at most {_MAX_WINDOW}")
    if not window or pattern not in fields:
        return
    numbers = fields.numbers(pattern)
    is_list = not isinstance(fields.get(pattern), int)
    if not any(numbers) if is_list else numbers == (1,):
        fields.bad(pattern, "without a window in any layer", "one with some, or no window")


def _check_embedder(fields: Fields) -> None:
    """Shapes that llama.cpp asserts or divides by."""
    width, tensors = fields.count(".embedding_length"), fields.header.tensors
    for key in (".dense_2_feat_in", ".dense_3_feat_out"):
        if (length := fields.count(key)) not in (None, 0, width):
            fields.bad(key, length, f"{width}, the width")
    if fields.architecture == "t5encoder":
        buckets = fields.count(".attention.relative_buckets_count") or 0
        if buckets < _FEWEST_BUCKETS:
            fields.bad(".attention.relative_buckets_count", buckets, f"{_FEWEST_BUCKETS} or more")
        name = "enc.blk.0.attn_rel_b.weight"
        if all(tensor.name != name for tensor in tensors):
            raise refuse(
                "MISSING_TENSOR",
                f"The tensor {name} is missing.",
                field=name,
                hint="A part of the model is missing; get it again.",
            )
    layers = fields.count(".block_count") or 0
    inner = fields.per_layer(".feed_forward_length", layers) or (0,)
    for tensor in tensors if fields.architecture == "jina-bert-v2" else ():
        if tensor.name.endswith("ffn_up.weight") and tensor.shape[-1] not in (
            inner[0],
            2 * inner[0],
        ):
            raise refuse(
                "TENSOR_SHAPE",
                f"{tensor.name} has {tensor.shape[-1]} rows, it must have "
                f"{inner[0]} or twice as many.",
                field=tensor.name,
                hint=RECONVERT,
            )


def _or(fields: Fields, key: str, default: int) -> int:
    """A count, or what llama.cpp takes where the file has none."""
    value = fields.count(key)
    return default if value is None else value


def check_recurrence(fields: Fields) -> None:
    """Raise BAD_VALUE for sizes that no recurrent layer of the architecture can have."""
    for key in _SIZES:
        size = fields.count(key)
        if size is not None and size > _MAX:
            fields.bad(key, size, f"at most {_MAX}")
    if fields.count(".full_attention_interval") == 0:  # layers are divided by it
        fields.bad(".full_attention_interval", 0, "above 0")
    arch = fields.architecture
    inner = fields.count(".ssm.inner_size") or 0
    width = fields.count(".embedding_length") or 0
    if arch in _TWICE and inner != 2 * width:
        fields.bad(".ssm.inner_size", inner, f"{2 * width}, twice the width")
    if arch in _WITH_MAMBA2:
        _divides(fields, ".ssm.time_step_rank", inner)
        _divides(fields, ".ssm.group_count", inner)
    if arch in _WITH_GATED_DELTA:
        _check_gated_delta(fields, inner)
    if arch in _SHORT_CONV and (fields.count(".shortconv.l_cache") or 0) < 2:
        fields.bad(".shortconv.l_cache", fields.count(".shortconv.l_cache"), "2 or more")
    _check_wkv(fields, width)


def _check_gated_delta(fields: Fields, inner: int) -> None:
    """Heads of values are a multiple of those of keys, and as long."""
    heads = _divides(fields, ".ssm.time_step_rank", inner)
    groups = _divides(fields, ".ssm.group_count", heads)
    state = fields.count(".ssm.state_size") or 0
    if state * heads != inner:
        fields.bad(".ssm.inner_size", inner, f"{state} × {heads}, a state for each of {groups}")


def _check_wkv(fields: Fields, width: int) -> None:
    """RWKV's heads divide a row."""
    if ".wkv.head_size" in fields:
        _divides(fields, ".wkv.head_size", width)
    shifts = fields.count(".token_shift_count")
    if fields.architecture in _TWO_SHIFTS and shifts not in (2, None):
        fields.bad(".token_shift_count", shifts, "2")


def _divides(fields: Fields, key: str, whole: int) -> int:
    """The value of `key`, which must divide `whole`."""
    value = fields.count(key) or 0
    if not value or whole % value:
        fields.bad(key, value, f"a divisor of {whole}")
    return value
