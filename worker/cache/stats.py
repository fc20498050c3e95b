"""What the cache of ended sequences holds, in a struct that never changes."""

from __future__ import annotations

import msgspec


class CacheStats(msgspec.Struct, frozen=True):
    """Bytes and tokens of the states that are kept outside of the KV cache.

    memory_bytes, memory_limit  what is held in host memory, and what may be
    kept_tokens      tokens whose state is in host memory now
    restored_tokens  tokens that were brought back into the KV cache, since the start
    evicted_tokens   tokens that had to leave host memory, since the start
    disk_limit       bytes that the folder may hold; 0: nothing is written
    disk_bytes       bytes in the folder, as far as this worker knows
    disk_written, disk_read  bytes since the start
    disk_errors      files that were damaged, could not be read or could not be written
    """

    memory_bytes: int = 0
    memory_limit: int = 0
    kept_tokens: int = 0
    restored_tokens: int = 0
    evicted_tokens: int = 0
    disk_limit: int = 0
    disk_bytes: int = 0
    disk_written: int = 0
    disk_read: int = 0
    disk_errors: int = 0
