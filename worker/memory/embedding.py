"""The context that makes vectors of texts: how large it is, and what it takes."""

from __future__ import annotations

import msgspec

from worker.memory.cells import CACHE_ENCODINGS
from worker.model.config import ModelConfig
from worker.model.vectors import LONGEST_IN_PARTS, pooling_of
from worker.settings import Settings

# Tokens of a text that is read whole, at most, where nobody says more with --ctx-size.
LONGEST_WHOLE = 2048
# Texts in a step.
_INPUTS = 64
# A decoder computes logits of each row, wanted or not: a step has as many as take this, or 64.
_LOGIT_BYTES = 64 << 20
_FEW_ROWS = 64
# Steps of an encoder with at most so many rows take less time with standard attention than filled
# up to a tile: 30 rows of all-MiniLM take 13 ms and 22, 48 take 20.5, 56 take 27.
_SHORT_ROWS = 48
# A decoder's attention is plain where its scores take no more than this: fused, llama.cpp sums in
# 16 bits where a step has few rows, and a vector would depend on what shares its step.
_SCORE_BYTES = 320 << 20
# Encoders for which llama.cpp makes cells all the same.
_WITH_CELLS = frozenset({"llama-embed", "t5encoder"})


class EmbeddingShape(msgspec.Struct, frozen=True, kw_only=True):
    """How large the context is.

    pooling    how the vectors of a text's tokens become one
    length     tokens of a text at most
    splits     a text may be read in several steps
    step_rows  rows with which a step is efficient
    rows       rows of a step at most: llama.cpp ends the process where a text that must be read
               whole has more
    inputs     texts in a step
    cells      of the KV cache, or rows where there is none
    has_cells  whether there is one
    flash_attn on, off or auto
    """

    pooling: str
    length: int
    splits: bool
    step_rows: int
    rows: int
    inputs: int
    cells: int
    has_cells: bool
    flash_attn: str

    @property
    def fills(self) -> bool:
        """Whether steps of few rows are filled up to a tile on the CPU."""
        return not self.has_cells and self.flash_attn == "auto"

    @property
    def short_rows(self) -> int:
        """Rows of a second context on the CPU, for short texts; 0: there is none."""
        return min(_SHORT_ROWS, self.rows) if self.fills else 0


def embedding_shape(
    config: ModelConfig, settings: Settings, num_cells: int
) -> EmbeddingShape | None:
    """For texts of at most `num_cells` tokens; None: no vectors are made.

    Raises UsageError where the model has no such pooling.
    """
    pooling = pooling_of(config.vectors, settings.pooling, only_embeds=config.only_embeds)
    if pooling is None:
        return None
    is_decoder = config.kind == "decoder"
    splits = is_decoder and config.causal
    length = min(num_cells, config.context)
    if not config.only_embeds:
        length = min(length, LONGEST_IN_PARTS)
    step_rows = settings.batch_size
    if is_decoder:
        step_rows = min(step_rows, max(_FEW_ROWS, _LOGIT_BYTES // (4 * config.vocab_size)))
    rows = step_rows if splits else max(step_rows, length)
    has_cells = is_decoder or config.architecture in _WITH_CELLS
    cells = rows + length if splits else rows
    may_be_plain = settings.flash_attn == "auto" and not (
        has_cells and CACHE_ENCODINGS[settings.cache_type_v].quantized
    )
    is_plain = has_cells and may_be_plain and 4 * config.max_heads * rows * cells <= _SCORE_BYTES
    return EmbeddingShape(
        pooling=pooling,
        length=length,
        splits=splits,
        step_rows=step_rows,
        rows=rows,
        inputs=min(settings.slots if config.recurrent else _INPUTS, rows),
        cells=cells,
        has_cells=has_cells,
        flash_attn="off" if is_plain else settings.flash_attn,
    )


def longest_text(config: ModelConfig) -> int:
    """Tokens of a text where nobody asks for more, of a model that is for nothing else."""
    in_parts = config.kind == "decoder" and config.causal
    return min(config.context, LONGEST_IN_PARTS if in_parts else LONGEST_WHOLE)


def output_bytes(config: ModelConfig, shape: EmbeddingShape) -> int:
    """Bytes of what is computed of each row: its vector, and room for logits that nobody reads."""
    return 4 * (shape.rows + shape.short_rows) * (config.vocab_size + config.vectors.width)
