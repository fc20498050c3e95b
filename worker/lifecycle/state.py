"""The states of a worker and the moves between them."""

from __future__ import annotations

from enum import StrEnum

from worker import log


class State(StrEnum):
    """
    loading -> ready -> draining -> stopped
       |         |          |
       +---------+----------+-----> failed

    A stop while loading goes to draining at once.
    """

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "failed"


_MOVES: dict[State, frozenset[State]] = {
    State.LOADING: frozenset({State.READY, State.DRAINING, State.FAILED}),
    State.READY: frozenset({State.DRAINING, State.FAILED}),
    State.DRAINING: frozenset({State.STOPPED, State.FAILED}),
    State.STOPPED: frozenset(),
    State.FAILED: frozenset(),
}


class Lifecycle:
    """Holds the current state; `lifecycle/worker.py` is its only writer."""

    def __init__(self) -> None:
        self.state = State.LOADING

    def move(self, target: State) -> bool:
        """Enter `target`; False (and nothing changes) where that move does not exist."""
        if target not in _MOVES[self.state]:
            return False
        log.get("lifecycle").info("state", console="", old=self.state.value, new=target.value)
        self.state = target
        return True
