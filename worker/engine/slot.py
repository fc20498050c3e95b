"""A slot: one sequence id of the KV cache."""

from __future__ import annotations

import numpy as np

from worker.engine.request import NO_PROMPT

_NOTHING = np.empty(0, np.int32)


class Slot:
    """A sequence id of the cache and what it holds.

        tokens[:length]   are computed; cells[:length] are the cells that hold them

    A running slot belongs to a sequence, whose `tokens` it has. A cached slot was left by a
    sequence that ended or waits again. All others are free. Who writes what:

        Cells     all but the following
        a pool    cells, which only the unified layout has
        Keeper    is_saved, marks
        Prefixes  marks, where others need what the slot computes; prompt

    index     its sequence id; it changes when what the slot holds is moved
    num_wide  its first tokens, as far as wide steps computed them, see `Kernels`
    is_saved  everything that a cached slot holds is kept outside of the cache too
    marks     lengths at which computing must pause, because a state is copied there; ascending
    prompt    whose tokens it holds
    """

    __slots__ = (
        "cells", "index", "is_running", "is_saved", "length", "marks", "num_wide", "prompt",
        "tokens",
    )  # fmt: skip

    def __init__(self, index: int) -> None:
        self.index = index
        self.is_running = False
        self.is_saved = False
        self.tokens = _NOTHING
        self.cells = _NOTHING
        self.length = self.num_wide = 0
        self.marks: list[int] = []
        self.prompt = NO_PROMPT

    def pause(self, count: int) -> int:
        """How many of the next `count` tokens may be computed before the next mark, or before what
        cannot share their step."""
        for mark in self.marks:
            if mark > self.length:
                count = min(count, mark - self.length)
                break
        return self.prompt.run(self.length, count)

    def add_mark(self, length: int) -> None:
        """Pause at `length` too, which is not computed yet."""
        if length > self.length and length not in self.marks:
            self.marks.append(length)
            self.marks.sort()

    @property
    def position(self) -> int:
        """The position of its next token."""
        return self.prompt.position(self.length)

    def forget(self) -> None:
        """The slot holds nothing and belongs to nobody."""
        self.tokens = self.cells = _NOTHING
        self.length = self.num_wide = 0
        self.is_running = self.is_saved = False
        self.marks = []
        self.prompt = NO_PROMPT
