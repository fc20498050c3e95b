"""What adapters take beside the model."""

from __future__ import annotations

from collections.abc import Iterable

from worker.model.adapter import AdapterConfig
from worker.settings import Settings

# Resident for each matrix; of one to eight adapters of 42 to 168 matrices it was 6,200 to 9,000.
_GRAPH_BYTES = 7_000
# For adapters that are loaded while the worker serves, where nothing else is said.
_ROOM_MIB = 256


def room_bytes(settings: Settings) -> int:
    """Bytes for adapters that are loaded while the worker serves."""
    if not settings.lora_dir:
        return 0
    return (_ROOM_MIB if settings.lora_memory is None else settings.lora_memory) << 20


def adapters_bytes(adapters: Iterable[AdapterConfig]) -> int:
    """Bytes of their matrices, and of graphs with room for all of them. A step with adapters needs
    no larger compute buffer: its most is elsewhere, by llama.cpp's own word."""
    return sum(each.size_bytes + _GRAPH_BYTES * each.matrices for each in adapters)
