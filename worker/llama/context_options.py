"""How large a context is, and how it computes."""

from __future__ import annotations

from typing import Literal

import msgspec

from worker.memory.buffers import CHUNK_OUTPUTS
from worker.model.control_vector import ControlVector


class ContextOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How large the context is.

    num_cells     of one pool for all slots; rounded up to CELL_STEP
    num_slots     sequences at once, 1 to 256
    unified       start with the pool, also where each slot could have cells of its own
    chunk_outputs rows of a prompt whose logits one batch may ask for, besides one of each slot
    plain_rows    attention is plain where a row looks at its own sequence's cells only, so many
                  rows at once; 0: it is as `flash_attn` says
    yarn          YaRN's extrapolation and attention factors, slow and fast beta; below 0: as usual
    purpose       "text"; "heads": of the model's own heads, which guess; "text beside heads": that
                  gives the hidden states which they read, and forgets wrong guesses
    control       is added behind layers; not to what heads compute
    """

    num_cells: int
    num_slots: int
    unified: bool = False
    chunk_outputs: int = CHUNK_OUTPUTS
    batch_size: int = 512
    ubatch_size: int = 512
    threads: int = 1
    threads_batch: int = 1
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attn: str = "auto"
    plain_rows: int = 0
    yarn: tuple[float, float, float, float] = (-1.0, -1.0, -1.0, -1.0)
    purpose: Literal["text", "heads", "text beside heads", "vectors", "scores"] = "text"
    control: ControlVector | None = None

    @property
    def embeds(self) -> bool:
        """Whether it makes vectors or scores and no logits that anybody reads."""
        return self.purpose in ("vectors", "scores")
