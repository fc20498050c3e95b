"""Which replica gets a request: the one that knows its prompt, unless it has too much to do.

A key that the gateway has not seen yet goes to the idlest replica, and from then on to the same one
as long as that has a free slot and at most BOUND times the mean of all. So new prompts are spread
evenly, and those that come back find what was read before.

Among equals a key has an order of its own (the highest random weight: a hash of key and replica):
several gateways, or one that began anew, agree where they can. A hot key spreads over few replicas
instead of queueing at one (consistent hashing with bounded loads: Mirrokni, Thorup, Zadimoghaddam,
2018).
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from hashlib import blake2b

import msgspec

# With 1.25, as the paper has it, ten conversations over four workers of four slots were sent away
# from what they know so often that prompts took 15 % more CPU time to read.
BOUND = 2.0
_MOST_KEYS = 65_536


class Member(msgspec.Struct, frozen=True):
    """A replica that can be asked.

    id     tells it from all others of the fleet
    url    of its worker, with the key that this worker asks for
    slots  requests that it works on at once
    limit  requests that it accepts, those that wait included
    node   the machine it is on
    """

    id: str
    url: str
    key: str
    slots: int
    limit: int
    node: str

    def __repr__(self) -> str:
        return f"Member({self.id!r}, {self.url!r})"


def order(
    members: Sequence[Member],
    loads: Mapping[str, int],
    key: bytes | None,
    avoided: Set[str] = frozenset(),
    home: str | None = None,
) -> list[Member]:
    """The members in the order in which to ask them; empty where all are full.

    loads    requests that each is known to have; none is 0
    key      what the request has in common with others that it should follow, or None
    avoided  ids of those that failed lately: they come last
    home     the id of the one that had this key last; None: the key is new
    """
    open_ones = [member for member in members if loads.get(member.id, 0) < member.limit]
    total = 1 + sum(loads.get(member.id, 0) for member in members)
    mean = total / max(1, sum(member.slots for member in members))

    def rank(member: Member) -> tuple[bool, int, float, float]:
        load = loads.get(member.id, 0)
        share = load / member.slots
        if key is None:
            weight = random.random()  # noqa: S311
        else:
            weight = -1.0 if member.id == home else _weight(key, member.id)
        away = member.id in avoided
        if load >= member.slots:  # it would wait there: where the queue is shortest
            return away, 2, share, weight
        if home is None:
            return away, 0, share, weight
        return away, int(load >= math.ceil(BOUND * mean * member.slots)), 0.0, weight

    return sorted(open_ones, key=rank)


def _weight(key: bytes, member: str) -> float:
    return int.from_bytes(blake2b(member.encode(), key=key, digest_size=8).digest()) / 2**64


class Homes:
    """Where each key went last, of the latest _MOST_KEYS; for the event loop's thread."""

    def __init__(self) -> None:
        self._ids: OrderedDict[bytes, str] = OrderedDict()

    def order(
        self,
        members: Sequence[Member],
        loads: Mapping[str, int],
        key: bytes | None,
        avoided: Set[str] = frozenset(),
    ) -> list[Member]:
        """The same as `order`; who comes first is this key's home from now on."""
        home = None if key is None else self._ids.get(key)
        ranked = order(members, loads, key, avoided, home)
        if key is not None and ranked:
            self._ids[key] = ranked[0].id
            self._ids.move_to_end(key)
            if len(self._ids) > _MOST_KEYS:
                self._ids.popitem(last=False)
        return ranked
