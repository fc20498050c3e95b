"""What a sequence goes on from."""

from __future__ import annotations

import msgspec


class Prompt(msgspec.Struct, frozen=True):
    """What the model reads before it writes; the copies of one prompt hold the same.

    tokens       ids, at least one, exactly as computed (BOS included where it is wanted)
    checkpoints  lengths of the prompt after which another prompt may go on differently: there the
                 state of a model is kept that cannot be cut later
    """

    tokens: tuple[int, ...]
    checkpoints: tuple[int, ...] = ()
