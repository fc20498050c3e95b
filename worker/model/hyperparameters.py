"""Parts of a model's config that have a shape of their own."""

from __future__ import annotations

import msgspec

from worker.gguf.fields import Fields


class RopeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Rotary positions. `dimensions` of each head are rotated; 0 means that none are.

    Defaults for absent keys: all dimensions of a head, base 10000, no scaling, factor 1, and the
    context as the original context.
    """

    dimensions: int
    dimensions_swa: int
    sections: tuple[int, ...]
    freq_base: float
    scaling: str
    factor: float
    original_context: int
    attention_factor: float


class ExpertConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Mixture of experts. `used` has a number for each layer. Lengths without a key are 0."""

    count: int
    used: tuple[int, ...]
    shared: int
    groups: int
    groups_used: int
    feed_forward: tuple[int, ...]
    shared_feed_forward: int
    leading_dense_layers: int

    @property
    def max_used(self) -> int:
        """Experts that compute a token in the layer that uses the most."""
        return max(self.used, default=0)


class RecurrentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of recurrent state (Mamba, RWKV, short convolutions). Those without a key are 0."""

    conv_kernel: int
    inner_size: int
    state_size: int
    time_step_rank: int
    groups: int
    wkv_head_size: int
    token_shift: int
    short_conv: int
    kda_head_dim: int


class SamplingDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """The sampling that the model's makers recommend; None where they recommend nothing."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    penalty_last_n: int | None = None
    penalty_repeat: float | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    sequence: str | None = None


def first_number(fields: Fields, *keys: str) -> float | None:
    """The first of `keys` that is there, as a number."""
    return next((value for key in keys if (value := fields.number(key)) is not None), None)


def rope_config(fields: Fields, key_length: int, context: int) -> RopeConfig:
    """Rotation of heads of `key_length`."""
    dimensions = fields.count(".rope.dimension_count") if key_length else 0
    dimensions = key_length if dimensions is None else dimensions
    swa = fields.count(".rope.dimension_count_swa")
    base = fields.number(".rope.freq_base")
    factor = first_number(fields, ".rope.scaling.factor", ".rope.scale_linear")
    original = fields.count(".rope.scaling.original_context_length")
    attention = fields.number(".rope.scaling.attn_factor")
    return RopeConfig(
        dimensions=dimensions,
        dimensions_swa=dimensions if swa is None else swa,
        sections=fields.numbers(".rope.dimension_sections"),
        freq_base=10000.0 if base is None else base,
        scaling=fields.text(".rope.scaling.type") or ("linear" if factor else "none"),
        factor=factor or 1.0,
        original_context=context if original is None else original,
        attention_factor=1.0 if attention is None else attention,
    )


def expert_config(fields: Fields, layers: int) -> ExpertConfig | None:
    """The experts, or None for a dense model."""
    count = fields.count(".expert_count") or 0
    if not count:
        return None
    return ExpertConfig(
        count=count,
        used=fields.per_layer(".expert_used_count", layers) or (0,) * layers,
        shared=fields.count(".expert_shared_count") or 0,
        groups=fields.count(".expert_group_count") or 0,
        groups_used=fields.count(".expert_group_used_count") or 0,
        feed_forward=fields.per_layer(".expert_feed_forward_length", layers) or (0,) * layers,
        shared_feed_forward=fields.count(".expert_shared_feed_forward_length") or 0,
        leading_dense_layers=fields.count(".leading_dense_block_count") or 0,
    )


def recurrent_config(fields: Fields) -> RecurrentConfig | None:
    """The recurrent state, or None where the file has none of its keys."""
    names = {
        "conv_kernel": ".ssm.conv_kernel",
        "inner_size": ".ssm.inner_size",
        "state_size": ".ssm.state_size",
        "time_step_rank": ".ssm.time_step_rank",
        "groups": ".ssm.group_count",
        "wkv_head_size": ".wkv.head_size",
        "token_shift": ".token_shift_count",
        "short_conv": ".shortconv.l_cache",
        "kda_head_dim": ".kda.head_dim",
    }
    if not any(key in fields for key in names.values()):
        return None
    return RecurrentConfig(**{name: fields.count(key) or 0 for name, key in names.items()})


def sampling_defaults(fields: Fields) -> SamplingDefaults:
    """The keys that begin with `general.sampling.`."""

    def whole(key: str) -> int | None:
        value = fields.get(f"general.sampling.{key}")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def number(key: str) -> float | None:
        return fields.number(f"general.sampling.{key}")

    return SamplingDefaults(
        temperature=number("temp"),
        top_k=whole("top_k"),
        top_p=number("top_p"),
        min_p=number("min_p"),
        xtc_probability=number("xtc_probability"),
        xtc_threshold=number("xtc_threshold"),
        penalty_last_n=whole("penalty_last_n"),
        penalty_repeat=number("penalty_repeat"),
        mirostat=whole("mirostat"),
        mirostat_tau=number("mirostat_tau"),
        mirostat_eta=number("mirostat_eta"),
        sequence=fields.text("general.sampling.sequence"),
    )
