"""Sizes of recurrent layers that native code divides by each other, or asserts to be equal."""

from __future__ import annotations

from worker.gguf.fields import Fields

# Their inner size is twice the width of the model.
_TWICE = frozenset({"granitehybrid", "jamba", "mamba"})
_MAMBA2 = frozenset({"falcon-h1", "granitehybrid", "mamba2", "nemotron_h", "nemotron_h_moe"})
_GATED_DELTA = frozenset({"qwen35", "qwen35moe", "qwen3next"})
_SHORT_CONV = frozenset({"lfm2", "lfm2moe"})
_TWO_SHIFTS = frozenset({"rwkv6", "rwkv7"})
_MAX = 2**24  # of any size of a state: products of two fit an int64, and no model comes near
_SIZES = (".ssm.conv_kernel", ".ssm.inner_size", ".ssm.state_size", ".ssm.time_step_rank",
          ".ssm.group_count", ".wkv.head_size", ".shortconv.l_cache")  # fmt: skip


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
    if arch in _MAMBA2:
        _divides(fields, ".ssm.time_step_rank", inner)
        _divides(fields, ".ssm.group_count", inner)
    if arch in _GATED_DELTA:
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
