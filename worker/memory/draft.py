"""What a model takes that guesses tokens for another: it has weights and cells of its own."""

from __future__ import annotations

from worker.memory.buffers import (
    compute_bytes,
    kv_bytes_per_token,
    step_bytes,
    weights_bytes,
)
from worker.model.config import ModelConfig
from worker.settings import Settings

# Its entries in llama.cpp's vocabulary; the table of pieces is the other model's.
_TOKEN_BYTES = 240


def draft_bytes(draft: ModelConfig, settings: Settings, num_cells: int) -> int:
    """Bytes of its weights, cells, compute buffer, one row of logits a sequence, vocabulary.

    num_cells: of the model that it guesses for; it gets as many
    """
    return (
        weights_bytes(draft)
        + num_cells * kv_bytes_per_token(draft, settings)
        + compute_bytes(step_bytes(draft, settings, num_cells))
        + 4 * draft.vocab_size * settings.slots
        + draft.vocab_size * _TOKEN_BYTES
    )
