"""What contexts take where llama.cpp is not asked: at a start with memory to spare until the worker
idles, of places that are elsewhere, where it died of the question; and how a step is divided among
GPUs while layers are chosen for them.

The general rule, which knows no architecture: a layer with key/value heads has cells, one without
has a state; where all have heads, all have both. It says too much of models whose layers differ in
ways that only llama.cpp knows, and hardly ever too little. The compute buffer is the largest set of
tensors that live at the same time in a step (`llama-graph.cpp`, `ggml-alloc.c`).
"""

from __future__ import annotations

import math

import msgspec

from worker.memory.cells import CACHE_ENCODINGS, cell_widths, is_fused
from worker.memory.contexts import AskBuffers, ContextBytes, Wanted, own_cells
from worker.model.config import ModelConfig
from worker.model.drafts import reads_cells
from worker.settings import Settings


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of tensors in a step: of single ones, and of those that live at the same time.

    mask    the attention masks
    rows    a row of the residual stream for each token
    block   the most that lives at the same time in a block, with the mask
    mixing  the same of a block whose experts are computed elsewhere
    last    the same in the last block; behind its attention only rows with outputs go on
    output  logits and normed rows of the outputs
    """

    mask: int
    rows: int
    block: int
    mixing: int
    last: int
    output: int


def estimator(config: ModelConfig, draft: ModelConfig | None = None) -> AskBuffers:
    """Of contexts of this model, and of what guesses for it, a draft model or its heads."""

    def ask(wanted: Wanted) -> ContextBytes:
        model = (draft or _heads(config)) if wanted.beside else config
        settings, shape = wanted.settings, wanted.shape
        looks = msgspec.structs.replace(model, nextn_layers=0) if reads_cells(model) else model
        step = step_bytes(looks, wanted)
        cells, slots = wanted.num_cells, settings.slots
        if shape is not None:
            cells, slots = shape.cells if shape.has_cells else 0, shape.inputs
        return ContextBytes(
            cells * _cell(model, settings),
            slots * math.prod(_state(model)) * (1 + wanted.states_kept),
            max(step.block, step.output + step.rows),
        )

    return ask


def _heads(config: ModelConfig) -> ModelConfig:
    """The heads as if they were all layers of a model: each has attention."""
    count = config.nextn_layers
    return msgspec.structs.replace(
        config,
        layers=count,
        heads=(config.max_heads,) * count,
        kv_heads=(config.max_kv_heads,) * count,
        nextn_layers=0,
        recurrent=None,
        sliding_window=0,
        sliding_pattern=(),
        shared_kv_layers=0,
    )


def _cell(config: ModelConfig, settings: Settings) -> int:
    """Bytes of one cell. Latent attention (MLA) stores no values. Without the fused kernel values
    are stored transposed, and every layer gets the width of the widest."""
    widths, (keys, values) = cell_widths(config), (settings.cache_type_k, settings.cache_type_v)
    widest = max((value for _, value in widths), default=0)
    total = sum(_row(key, keys) for key, _ in widths)
    if config.key_length_mla and config.value_length_mla:
        return total
    fused = is_fused(config, settings.flash_attn)
    return total + sum(_row(value if fused else widest, values) for _, value in widths)


def _row(width: int, cache_type: str) -> int:
    encoding = CACHE_ENCODINGS[cache_type]
    return -(-width // encoding.block) * encoding.nbytes


def _state(config: ModelConfig) -> tuple[int, int]:
    """Layers with a recurrent state, and bytes of one for one sequence."""
    sizes = config.recurrent
    if sizes is None:
        return 0, 0
    trunk = config.layers - config.nextn_layers
    layers = sum(not heads for heads in config.kv_heads[:trunk]) or trunk
    if sizes.wkv_head_size:  # RWKV; without the key two tokens are shifted
        elements = config.embedding * (sizes.wkv_head_size + (sizes.token_shift or 2))
    elif sizes.kda_head_dim:  # Kimi
        inner = config.max_heads * sizes.kda_head_dim
        elements = inner * (3 * ((sizes.conv_kernel or 4) - 1) + sizes.kda_head_dim)
    else:
        channels = sizes.inner_size + 2 * sizes.groups * sizes.state_size
        elements = max(sizes.conv_kernel - 1, 0) * channels + sizes.state_size * sizes.inner_size
        elements += config.embedding * max(sizes.short_conv - 1, 0)
    return layers, 4 * elements


def step_bytes(config: ModelConfig, wanted: Wanted) -> Step:
    """The sizes of a step of `ubatch_size` rows; four moments of it are candidates for the largest.

    feed-forward  mask + up, gate and their product + four rows of the residual stream (one of them
                  lives, the others are holes too small to be used again)
    attention     mask + residual stream, queries, keys, values, result; without the fused
                  kernel also the scores, heads x cells for each row
    recurrence    residual stream, six times the inner width (Mamba), a copy of the state
    output        logits and normed rows of the outputs + one row of the residual stream
    """
    settings, num_cells, chunk_outputs = wanted.settings, wanted.num_cells, wanted.chunk_outputs
    if (shape := wanted.shape) is not None:
        settings = msgspec.structs.replace(
            settings, parallel=shape.inputs, batch_size=shape.rows, ubatch_size=shape.rows,
            flash_attn=shape.flash_attn,
        )  # fmt: skip
        num_cells, chunk_outputs = shape.cells, shape.rows
    slots, is_encoder = settings.slots, config.kind == "encoder"
    rows = min(num_cells, max(settings.batch_size, slots), settings.ubatch_size)
    outputs = min(rows, slots + chunk_outputs)
    rows = -(-rows // slots) * slots
    fused = is_fused(config, settings.flash_attn)
    width, heads = config.embedding, config.max_heads
    inner, down = max(config.feed_forward, default=0), width
    if config.experts:
        used = config.experts.max_used
        expert = max(config.experts.feed_forward, default=0) or inner
        inner = max(inner if config.experts.leading_dense_layers else 0, used * expert)
        down = used * width
    seen = num_cells if wanted.unified else own_cells(num_cells, slots)
    widths = cell_widths(config)
    key, value = max(widths, default=(0, 0), key=sum)
    masks = (2 if config.sliding_window else 1) if widths else 0
    mask = seen * rows * (2 if fused else 4) * masks
    if is_encoder:  # it is made in F32 at first
        mask += 4 * seen * rows
    feed = mask + 4 * rows * (4 * width + max(3 * inner, inner + down))
    attention = mask + 4 * rows * (2 * width + heads * (config.key_length + config.value_length))
    attention += 4 * rows * (key + value)
    if not fused:
        attention += rows * (4 * heads * seen + 8 * value)
    recurrence = 0
    if config.recurrent and config.recurrent.inner_size:
        recurrence = 4 * rows * (width + 6 * config.recurrent.inner_size)
        recurrence += slots * _state(config)[1]
    return Step(
        mask=mask,
        rows=4 * rows * width,
        block=max(feed, attention, recurrence),
        mixing=max(attention, recurrence),
        last=max(attention - 4 * rows * (key + value), recurrence),
        output=0 if is_encoder else 4 * outputs * (config.vocab_size + width),
    )
