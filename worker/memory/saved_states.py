"""How much memory and disk the states of ended sequences may take, and copying them takes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from worker.files import entries, free_bytes
from worker.model.config import ModelConfig
from worker.settings import Settings

MIB = 1 << 20
# Where nobody says how much. More than this is seldom read again before it is evicted.
DEFAULT_MEMORY = 8192 * MIB
DEFAULT_DISK = 8192 * MIB
# The share of what the rest of the plan leaves. Three quarters stay for neighbours, for the file
# cache and for the copies of running sequences while the layout of the cells changes.
MEMORY_SHARE = 0.25
# The share of the room on the disk.
DISK_SHARE = 0.5
# One for the state that llama.cpp writes and one for the state that it reads. They are used again
# and again. What a larger state needs beyond that is given back at once.
COPY_BUFFERS = 2
MAX_COPY_BUFFER = 64 * MIB


def copy_bytes(config: ModelConfig, num_cells: int, cell: int, state: int) -> int:
    """Bytes of the buffers through which states leave the KV cache and come back.

    cell, state: bytes of a cell, and of the recurrent state of one sequence
    """
    longest = min(num_cells, config.context or num_cells)
    return COPY_BUFFERS * min(MAX_COPY_BUFFER, longest * cell + state)


def memory_limit(settings: Settings, spare: int) -> int:
    """Bytes of host memory that kept states may take, in whole MiB; 0: none are kept.

    spare: bytes of host memory that everything else in the plan leaves
    """
    if settings.cache_ram is not None:
        return settings.cache_ram * MIB
    return min(DEFAULT_MEMORY, int(max(0, spare) * MEMORY_SHARE) // MIB * MIB)


def disk_limit(settings: Settings) -> int:
    """Bytes that the files of kept states may take, in whole MiB; 0: nothing is written.

    The default depends on the room: what is free on the folder's disk, and what the folder holds
    already. Without the second part a worker would lower its limit at every start.
    """
    if settings.cache_dir is None:
        return 0
    if settings.cache_disk is not None:
        return settings.cache_disk * MIB
    folder = Path(settings.cache_dir)
    held = sum(_size(file) for place in entries(folder) for file in entries(place))
    room = free_bytes(folder) + held
    return min(DEFAULT_DISK, int(room * DISK_SHARE) // MIB * MIB)


def _size(file: os.DirEntry[str]) -> int:
    """Bytes of a file; 0 where it is gone already or is none."""
    try:
        found = file.stat(follow_symlinks=False)
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0
