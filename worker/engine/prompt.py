"""What a sequence goes on from."""

from __future__ import annotations

import msgspec


class Prompt(msgspec.Struct, frozen=True):
    """What the model reads before it writes; the copies of one prompt hold the same.

    tokens       ids, at least one, exactly as computed (BOS included where it is wanted)
    checkpoints  lengths of the prompt after which another prompt may go on differently: there the
                 state of a model is kept that cannot be cut later
    key          with what it is computed, such as a set of adapters; empty: the model alone. Only
                 sequences with one key share a step, or anything that the cache holds
    """

    tokens: tuple[int, ...]
    checkpoints: tuple[int, ...] = ()
    key: bytes = b""
