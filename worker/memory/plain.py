"""Whether attention may be computed in the plain way, in the memory that is planned anyway."""

from __future__ import annotations

import msgspec

from worker.memory.buffers import CACHE_ENCODINGS, compute_bytes, is_fused, step_bytes
from worker.memory.layers import kv_layers
from worker.model.config import ModelConfig
from worker.settings import Settings

# Rows of a step's part. Plain attention writes a score for each head, row and cell, so 512 rows of
# a Llama-1B with 8,192 cells take 537 MB. 512 tokens after 1,400 others take 0.99 s in parts
# of 32 rows and 1.11 s at once (125M), after 700 others 9.1 s in parts of 32 and 8.4 s of 16 (1B).
_ROWS = (64, 32, 16)


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
