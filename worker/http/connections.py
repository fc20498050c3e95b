"""All connections of the server: how many there may be, and who goes where there is no room."""

from __future__ import annotations

import abc
import os
import resource
from pathlib import Path
from typing import NamedTuple

# Beside the connections that may be: whoever asks for health gets in, whatever the others do.
GUESTS = 4
# In the scope of a request: that it is a guest's, its `Wire`, and what waits for the model.
GUEST, WIRE, ENTER = "worker.guest", "worker.wire", "worker.enter"
# In the scope of a request that the worker makes to itself.
INNER = "worker.inner"
# Descriptors that stay free for what the worker itself opens: a file of kept states, a callback.
_OWN_FILES = 4
_FILES = Path("/dev/fd")


class Connection(abc.ABC):
    """One client's connection.

    is_guest  there was no room for it: it may ask for health, and is closed then
    """

    is_guest = False

    @abc.abstractmethod
    def drop(self) -> bool:
        """Close it at once, unless its client still has to take what was written: whether so."""


class Admission(NamedTuple):
    """Whether a new connection may stay, and as what."""

    may_stay: bool
    as_guest: bool


class Connections:
    """Counts them, and closes those that nobody misses where there are more than may be.

    First goes the one that has asked nothing for the longest time, then the one whose request has
    been on its way for the longest time. Where all are being answered a few more come in as guests.
    There is no room where `most` are there, or where few descriptors are left.
    """

    def __init__(self, most: int, receive_s: float, send_s: float) -> None:
        """most: connections; receive_s, send_s: seconds that a client gets, see `limits.py`"""
        self.most = most
        self.receive_s = receive_s
        self.send_s = send_s
        self._count = self._num_guests = 0
        self._silent: dict[Connection, None] = {}  # the oldest first
        self._sending: dict[Connection, None] = {}
        self._room = 0  # as many as there are descriptors for, when it was looked last

    @property
    def count(self) -> int:
        return self._count

    def has_room(self) -> bool:
        """Whether one more may be there."""
        if self._count >= self.most:
            return False
        if self._count >= self._room:
            self._room = self._count + _free_files() - GUESTS - _OWN_FILES
        return self._count < self._room

    def make_room(self) -> Admission:
        """For a connection for which there is none."""
        dropped = self.drop_one()
        if dropped is not None:
            return Admission(True, dropped.is_guest)
        return Admission(self._num_guests < GUESTS, True)

    def drop_one(self) -> Connection | None:
        """Close the connection that will be missed least; None: all are being answered."""
        for waiting in (self._silent, self._sending):
            for connection in waiting:
                if connection.drop():
                    del waiting[connection]
                    return connection
        return None

    def on_exhaustion(self) -> None:
        """The system gives no descriptor: there is one connection less, and it is looked again."""
        self.drop_one()
        self._room = 0

    def on_open(self, connection: Connection) -> None:
        """It is there, and has said nothing yet."""
        self._count += 1
        self._num_guests += connection.is_guest
        self._silent[connection] = None

    def sends(self, connection: Connection) -> None:
        """It has sent a request's head; the body may follow."""
        self._silent.pop(connection, None)
        self._sending[connection] = None

    def waits(self, connection: Connection) -> None:
        """It has sent a whole request."""
        self._sending.pop(connection, None)

    def rests(self, connection: Connection) -> None:
        """It has its answer; nothing is at hand."""
        self._sending.pop(connection, None)
        self._silent[connection] = None

    def on_loss(self, connection: Connection) -> None:
        self._count -= 1
        self._num_guests -= connection.is_guest
        self._silent.pop(connection, None)
        self._sending.pop(connection, None)


def _free_files() -> int:
    """Descriptors that this process could still open."""
    try:
        open_files = _open_files()
    except OSError:  # to look takes one
        return 0
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] - open_files


def _open_files() -> int:
    try:
        return sum(1 for _ in _FILES.iterdir())
    except FileNotFoundError:  # a container without /proc, where that leads
        lowest_free = os.dup(0)
        os.close(lowest_free)
        return lowest_free  # so many are open at least, and few more: they are given out in order
