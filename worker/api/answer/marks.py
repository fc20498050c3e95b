"""Marks in a stream for the relay in front, which takes them out: what its client has by then.

    events of a token   data: {...}\\n\\n
    its mark            :w [0,5613]\\n\\n            number of the sequence, the token
                        :w [0,5613,[17]]\\n\\n       and the place of the sampler
                        :w [0,5613,[],1]\\n\\n       and the step that gave it, see `Replay`
    of what has none    :w []\\n\\n

The relay passes on what stands before a mark, all or nothing. Where this answer goes on behind what
another worker has told, what it tells again is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from worker.api.intake.delivery import Relay
from worker.engine.sequence import Delta

_encode = msgspec.json.Encoder().encode


class Marks:
    """Of one answer."""

    def __init__(self, relay: Relay, ids: Sequence[str], border: bytes) -> None:
        """ids: of its sequences"""
        self._numbers = {name: number for number, name in enumerate(ids)}
        self._border = border
        self._num_told = relay.told.events
        counts = {ids[n]: len(told) for n, told in relay.told.tokens.items() if n < len(ids)}
        self._again = {name: count for name, count in counts.items() if count}
        self.empty = b":w []" + border

    def events_of(
        self,
        delta: Delta,
        frames_of: Callable[[Delta], list[bytes]],
        catch_up: Callable[[int], None],
    ) -> list[bytes]:
        """The events with their mark; nothing where the client has them.

        frames_of  the events of a delta
        catch_up   notes that so many events were told, once all tokens that were are known
        """
        if self._num_told and not self._again:
            self._note_told(catch_up)
        events = frames_of(delta)
        if delta.id in self._again and delta.token is not None:
            self._again[delta.id] -= 1
            if not self._again[delta.id]:
                del self._again[delta.id]
                if not self._again:
                    self._note_told(catch_up)
            return []
        return [b"".join([*events, self._mark_of(delta)])]

    def _note_told(self, catch_up: Callable[[int], None]) -> None:
        catch_up(self._num_told)
        self._num_told = 0

    def _mark_of(self, delta: Delta) -> bytes:
        if delta.token is None:
            return self.empty
        told: list[object] = [self._numbers[delta.id], delta.token]
        if delta.place or delta.step is not None:
            told.append(delta.place)
        if delta.step is not None:
            told.append(delta.step)
        return b":w %b%b" % (_encode(told), self._border)
