"""Sizes of the buffers that llama.cpp allocates for a model, from its config alone.

The sizes of weights that are read into memory and of KV cells are exact: they are computed as in
`llama-model-loader.cpp` and `llama-kv-cache.cpp` of 0.3.36. The compute buffer is an estimate: the
largest set of tensors that live at the same time in a step (`llama-graph.cpp`, `ggml-alloc.c`).
Measured over 119 contexts of seven Transformer shapes it is off by 0.7 % on average and by 7.6 % at
most, because the holes between tensors depend on their order.

Sizes are those of a unified cache, where sequences share the cells. Where each slot has cells of
its own there are as many cells or a few less, and a row's mask and scores are those of its own
cells (`seen_cells`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from worker.errors import UsageError
from worker.gguf.quant import ENCODINGS
from worker.machine import PackedEncoding
from worker.memory.layers import is_sliding, kv_layers, num_masks, recurrent_state
from worker.model.config import ModelConfig
from worker.settings import Settings

# Rows of a batch that a prompt may ask logits for at once, beside one of each sequence.
CHUNK_OUTPUTS = 64

# Rows of prompts in a step on a CPU. Whoever comes while a prompt is read alone, leaves or stops
# the worker waits for the end of such a piece: 128 rows of a Llama-1B take 0.5 s after 0 tokens and
# 2 s after 4,096 (2 cores).
PIECE_ROWS = 128

CACHE_ENCODINGS = {encoding.name.lower(): encoding for encoding in ENCODINGS.values()}
# Rows of a step's part. Plain attention writes a score for each head, row and cell, so 512 rows of
# a Llama-1B with 8,192 cells take 537 MB. 512 tokens after 1,400 others take 0.99 s in parts
# of 32 rows and 1.11 s at once (125M), after 700 others 9.1 s in parts of 32 and 8.4 s of 16 (1B).
_ROWS = (64, 32, 16)


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


def check_cache_types(config: ModelConfig, settings: Settings) -> None:
    """Raise UsageError where this model's keys or values cannot be stored in the types asked for.

    A quantised type stores whole blocks: q8_0 32 elements each. The fused kernel reads one head
    at a time, so a head must be whole blocks; llama.cpp refuses others, but only once the weights
    are loaded. Without that kernel a row of all heads must be; llama.cpp aborts on others.
    """
    layers = kv_layers(config)
    if not layers:
        return
    if is_fused(config, settings.flash_attn):
        what, keys, values = "heads", {config.key_length}, {config.value_length}
        if any(is_sliding(config, layer) for layer in range(config.layers)):
            keys, values = keys | {config.key_length_swa}, values | {config.value_length_swa}
    else:
        what, keys, values = "rows", {key for key, _ in layers}, set[int]()
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
    for option, cache_type, widths in (
        ("--cache-type-k", settings.cache_type_k, keys),
        ("--cache-type-v", settings.cache_type_v, values),
    ):
        block = CACHE_ENCODINGS[cache_type].block
        for width in sorted(widths):
            if width % block:
                raise UsageError(
                    f"{option} {cache_type} needs {what} of a multiple of {block} elements, and "
                    f"this model's have {width}.",
                    hint=f"Use {option} f16.",
                )


def weights_bytes(config: ModelConfig, packed: Iterable[PackedEncoding]) -> int:
    """Bytes of the weights on the CPU, which keeps these encodings in an order of their own.

    Each tensor is stored once, in the order that suits its encoding; a mapped file's other pages
    are given back. An embedding that is also the output is stored twice where that order differs
    from the plain one, because rows are looked up in the plain one.
    """
    embedding, embedding_bytes, tied = token_embedding(config)
    total = float(config.size_bytes)
    for encoding in packed:
        total += config.matrix_bytes.get(encoding.name, 0) * (encoding.growth - 1)
        if tied and encoding.name == embedding and config.vocab_size % encoding.rows == 0:
            total += embedding_bytes * encoding.growth
    return round(total)


def token_embedding(config: ModelConfig) -> tuple[str, int, bool]:
    """Encoding and bytes of the token embedding, and whether it is the output matrix too.

    The config has the sum of both matrices only. So two encodings of the mix are looked for whose
    bits make that sum. The output is never stored in fewer bits than the embedding.
    """
    elements = config.vocab_size * config.embedding
    if not elements or not config.n_embedding_params:
        return "", 0, False
    others = config.n_params - config.n_embedding_params
    nbytes = config.size_bytes - others * config.bits_per_weight_without_embeddings / 8
    bits = nbytes * 8 / config.n_embedding_params
    tied = config.n_embedding_params < 1.5 * elements
    sizes = {e.name: e.bits for e in ENCODINGS.values() if e.name in config.mix}
    for name, low in sizes.items():
        for high in (low,) if tied else (high for high in sizes.values() if high >= low):
            if abs((low + high) / 2 - bits) < 0.01:
                return name, int(elements * low / 8), tied
    return "", 0, tied


def kv_bytes_per_token(config: ModelConfig, settings: Settings) -> int:
    """Bytes of one cell over all layers that have a KV cache.

    Layers with a sliding window count in full: our contexts set `swa_full`, because a window that
    is cut down cannot be rewound or shared. Latent attention (MLA) stores no values. Without the
    fused kernel values are stored transposed, and every layer gets the width of the widest.
    """
    layers = kv_layers(config)
    widest = max((value for _, value in layers), default=0)
    latent = bool(config.key_length_mla and config.value_length_mla)
    total = 0
    for key, value in layers:
        total += _row_bytes(key, settings.cache_type_k)
        if not latent:
            width = value if is_fused(config, settings.flash_attn) else widest
            total += _row_bytes(width, settings.cache_type_v)
    return total


def output_bytes(
    config: ModelConfig, settings: Settings, num_cells: int, chunk_outputs: int = CHUNK_OUTPUTS
) -> int:
    """Bytes of the logits that wait to be sampled, those that a prompt asks for among them."""
    rows = min(num_cells, max(settings.batch_size, settings.slots))
    return 4 * config.vocab_size * min(rows, settings.slots + chunk_outputs)


def compute_bytes(step: Step) -> int:
    """Bytes of the compute buffer where one device computes everything."""
    return max(step.block, step.output + step.rows)


def step_bytes(
    config: ModelConfig,
    settings: Settings,
    num_cells: int,
    chunk_outputs: int = CHUNK_OUTPUTS,
    *,
    seen_cells: int | None = None,
) -> Step:
    """The sizes of a step of `ubatch_size` rows; four moments of it are candidates for the largest.

    feed-forward  mask + up, gate and their product + four rows of the residual stream (one of them
                  lives, the others are holes too small to be used again)
    attention     mask + residual stream, queries, keys, values, result; without the fused
                  kernel also the scores, heads x cells for each row
    recurrence    residual stream, six times the inner width (Mamba), a copy of the state
    output        logits and normed rows of the outputs + one row of the residual stream

    seen_cells: those that each row looks at; None: all
    """
    slots = settings.slots
    batch = max(settings.batch_size, slots)
    rows = min(num_cells, batch, settings.ubatch_size)
    outputs = min(rows, slots + chunk_outputs)
    rows = -(-rows // slots) * slots
    fused = is_fused(config, settings.flash_attn)
    width, heads = config.embedding, config.max_heads
    inner = max(config.feed_forward, default=0)
    down = width
    if config.experts:
        used = config.experts.max_used
        expert = max(config.experts.feed_forward, default=0) or inner
        inner = max(inner if config.experts.leading_dense_layers else 0, used * expert)
        down = used * width
    seen = num_cells if seen_cells is None else seen_cells
    mask = seen * rows * (2 if fused else 4) * num_masks(config)
    feed = mask + 4 * rows * (4 * width + max(3 * inner, inner + down))
    query, result = heads * config.key_length, heads * config.value_length
    key, value = max(kv_layers(config), default=(0, 0), key=sum)
    attention = mask + 4 * rows * (2 * width + query + result + key + value)
    if not fused:
        attention += rows * (4 * heads * seen + 8 * value)
    recurrence = 0
    if config.recurrent and config.recurrent.inner_size:
        state = slots * recurrent_state(config)
        recurrence = 4 * (rows * (width + 6 * config.recurrent.inner_size) + state)
    return Step(
        mask=mask,
        rows=4 * rows * width,
        block=max(feed, attention, recurrence),
        mixing=max(attention, recurrence),
        last=max(attention - 4 * rows * (key + value), recurrence),
        output=4 * outputs * (config.vocab_size + width),
    )


def used_bytes(config: ModelConfig, settings: Settings, num_cells: int, *, seen_cells: int) -> int:
    """Bytes of a CPU's compute buffer that steps of PIECE_ROWS rows write to; the rest of it is
    never in memory. Their tensors lie where those of the largest step would."""
    rows = min(settings.ubatch_size, PIECE_ROWS)
    settings = msgspec.structs.replace(settings, ubatch_size=rows)
    step = step_bytes(config, settings, num_cells, 0, seen_cells=seen_cells)
    return step.block + step.rows + step.output


def is_fused(config: ModelConfig, flash_attn: str) -> bool:
    """Whether attention runs in the fused kernel. On the CPU `auto` means on."""
    return flash_attn != "off" and config.architecture != "grok"


def _row_bytes(width: int, cache_type: str) -> int:
    encoding = CACHE_ENCODINGS[cache_type]
    return -(-width // encoding.block) * encoding.nbytes


def plain_rows(config: ModelConfig, settings: Settings, num_cells: int) -> int:
    """Rows that plain attention computes at once, in no more memory than fused attention; 0: none.

    0 also where the user has chosen, where a quantised cache needs fused attention, and for models
    that are more than layers of one kind which look at all cells.
    """
    slots = settings.slots
    types = (settings.cache_type_k, settings.cache_type_v)
    if settings.flash_attn != "auto" or not is_fused(config, settings.flash_attn):
        return 0
    if any(CACHE_ENCODINGS[name].quantized for name in types):
        return 0
    is_simple = not (config.recurrent or config.sliding_window or config.key_length_mla)
    if not is_simple or settings.uses_heads or len(set(kv_layers(config))) != 1:
        return 0
    fused = compute_bytes(step_bytes(config, settings, num_cells))
    for rows in _ROWS:
        plain = msgspec.structs.replace(settings, flash_attn="off", ubatch_size=rows)
        if slots <= rows and compute_bytes(step_bytes(config, plain, num_cells // slots)) <= fused:
            return rows
    return 0
