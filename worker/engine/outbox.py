"""From the engine's thread to the event loop: in order, and by one wake-up for all that waits."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")
# Writes bytes to a file descriptor; how many. It may raise OSError, or say -1.
Write = Callable[[int, bytes], int]
# Items that wait together at most; waking the loop for each costs it a tenth of a millisecond.
PATIENCE = 16


class Outbox(Generic[ItemT]):
    """What one thread puts in and the event loop takes out, in the same order.

    A byte in a pipe wakes the loop, and no second one is written before it was read: the pipe
    never fills, whoever puts never waits, and a loop that is late wakes once.
    `loop.call_soon_threadsafe` would do, but its `send` gives Python's lock away, and the loop
    keeps it while the engine wants to begin the next step.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, take: Callable[[list[ItemT]], object], write: Write
    ) -> None:
        """On the event loop. `take` gets all that waits there, in its order."""
        self._loop, self._take, self._write = loop, take, write
        self._items: deque[ItemT] = deque()
        self._is_rung = False
        self._ear, self._bell = os.pipe()
        os.set_blocking(self._ear, False)
        os.set_blocking(self._bell, False)
        loop.add_reader(self._ear, self._on_ring)

    def put(self, item: ItemT, *, rings: bool = True) -> None:
        """In any one thread, until `close`; nobody is told once the loop has ended.

        rings: False where nobody waits for it; it goes with the next that rings, or with the
        PATIENCE-th that waits
        """
        self._items.append(item)
        if rings or len(self._items) >= PATIENCE:
            self.ring()

    def ring(self) -> None:
        """Let the loop take out what waits, if there is something; where `put` may be called."""
        if self._items and not self._is_rung:
            self._is_rung = True
            self._wake()

    def _wake(self) -> None:
        """Wake the loop, in its own way where the pipe does not take the byte."""
        with contextlib.suppress(OSError):
            if self._write(self._bell, b"\0") == 1:
                return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._heard)

    def _on_ring(self) -> None:
        with contextlib.suppress(OSError):  # the byte is still there, and rings again
            os.read(self._ear, 1)
        self._heard()

    def _heard(self) -> None:
        # First this, then the items: what is put in between rings once more.
        self._is_rung = False
        self.empty()

    def empty(self) -> None:
        """On the event loop: take out all that is there."""
        while self._items:
            # What is put in meanwhile comes in the next round: `len` is asked once.
            self._take([self._items.popleft() for _ in range(len(self._items))])

    def close(self) -> None:
        """Take out the rest and let go of the pipe, once nobody puts any more.

        On the event loop, or anywhere when that is closed. Before, the number of a closed
        descriptor could be somebody's connection when the next byte is written.
        """
        if not self._loop.is_closed():
            self._loop.remove_reader(self._ear)
            self.empty()
        os.close(self._ear)
        os.close(self._bell)
