"""Who is there: the models of the fleet and their replicas, as Ray Serve tells each gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from gguf_fleet.routing import Member


class Roster:
    """Replicas by model. One thread publishes, others read: a tuple is replaced as a whole.

    wakes   of the models that may have no replica: what starts the first one
    wanted  how many replicas each model is to have; it may block
    """

    def __init__(
        self,
        affinities: Mapping[str, str],
        wakes: Mapping[str, Callable[[], None]] | None = None,
        wanted: Callable[[], dict[str, int]] = dict,
    ) -> None:
        """affinities: the `affinity` of each model of the fleet, in the file's order"""
        self.affinities = dict(affinities)
        self.wakes = dict(wakes or {})
        self.wanted = wanted
        self._members: dict[str, tuple[Member, ...]] = dict.fromkeys(affinities, ())

    def publish(self, model: str, members: Iterable[Member]) -> None:
        """These are all replicas of the model that are ready and not about to leave."""
        self._members[model] = tuple(members)

    def members(self, model: str) -> tuple[Member, ...]:
        return self._members[model]

    def is_served(self, model: str) -> bool:
        """Whether a request for the model is answered: it has a replica, or gets one."""
        return bool(self._members[model]) or model in self.wakes

    def all(self) -> Iterator[tuple[str, Member]]:
        """(model, replica) of the whole fleet."""
        for model, members in self._members.items():
            for member in members:
                yield model, member

    def find(self, replica: str) -> tuple[str, Member] | None:
        """(model, replica) of that id, or None."""
        return next((found for found in self.all() if found[1].id == replica), None)


_followers: list[Roster] = []


def follow(roster: Roster) -> None:
    """Keep this roster of this process up to date from now on."""
    _followers.append(roster)


def tell(model: str, members: Iterable[Member]) -> None:
    known = tuple(members)
    for roster in _followers:
        roster.publish(model, known)
