"""What a step of a worker costs, recorded from real models by `python -m benchmarks.steps.costs` of
the worker, and how much of a prompt a step reads by it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

_FILE = Path(__file__).with_name("costs.json")
# As the engine's: seconds that those who write may wait for a step, rows of a batch, the first step
# of a prompt that is alone, the least rows of one that is not, and the blocks of kernels.
_STALL_S = 0.4
_BATCH = 512
_LONE_CHUNK = 128
_SMALLEST_CHUNK = 8
_ROW_BLOCK = 16


class RecordedCosts(msgspec.Struct, frozen=True):
    """CPU seconds on one thread.

    decode  of a step by its rows, each of a sequence of about 270 tokens
    alone   of one row of a prompt of 512 that nobody waits beside
    beside  of one row of such a prompt while four sequences write
    """

    decode: dict[int, float]
    alone: float
    beside: float

    def step(self, rows: int) -> float:
        """Seconds of a step of so many rows, at most as many as were recorded."""
        low = max(n for n in self.decode if n <= rows)
        high = min(n for n in self.decode if n >= rows)
        if low == high:
            return self.decode[rows]
        share = (rows - low) / (high - low)
        return self.decode[low] + share * (self.decode[high] - self.decode[low])

    def chunk(self, rows: int) -> int:
        """Rows of a prompt that a step reads beside so many that write; 0: nobody does."""
        if not rows:
            return _LONE_CHUNK
        fitting = (_STALL_S - self.step(rows)) / self.beside
        chunk = int(max(_SMALLEST_CHUNK, min(fitting, _BATCH)))
        beyond = (rows + chunk) % _ROW_BLOCK
        return chunk if chunk - beyond < _SMALLEST_CHUNK else chunk - beyond


def read_costs() -> dict[str, RecordedCosts]:
    """All that were recorded, by name."""
    return msgspec.json.decode(_FILE.read_bytes(), type=dict[str, RecordedCosts])
