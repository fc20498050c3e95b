"""What adapters take beside the model."""

from __future__ import annotations

from collections.abc import Iterable

from worker.model.adapter import AdapterConfig
from worker.settings import Settings

# For adapters that are loaded while the worker serves, where nothing else is said.
_ROOM_MIB = 256


def room_bytes(settings: Settings) -> int:
    """Bytes for adapters that are loaded while the worker serves."""
    if not settings.lora_dir:
        return 0
    return (_ROOM_MIB if settings.lora_memory is None else settings.lora_memory) << 20


def adapters_bytes(adapters: Iterable[AdapterConfig], settings: Settings) -> int:
    """Bytes of their matrices, and of what a step of `ubatch_size` rows computes with them: for the
    widest matrix what is added, and that scaled. The 125M shape with four of rank 16: 7 MB."""
    found = tuple(adapters)
    rows = min(settings.ubatch_size, max(settings.batch_size, settings.slots))
    widest = max((adapter.widest for adapter in found), default=0)
    return sum(adapter.size_bytes for adapter in found) + 8 * rows * widest
