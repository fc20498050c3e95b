"""Sharing of prefixes: what is known already of a prompt, and who waits for whom to compute it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from worker.engine.backend import Backend
from worker.engine.kv import Cells, Slot
from worker.engine.sequence import Sequence


class Match(NamedTuple):
    """A slot that knows a prompt's first `num_tokens`: it has computed them or is going to."""

    slot: Slot
    num_tokens: int


class _Following(NamedTuple):
    """A sequence leaves the tokens up to position `until` to the slot `leader`.

    tokens: the leader's; the slot has another array once it belongs to another sequence
    """

    leader: Slot
    tokens: np.ndarray
    until: int


class Prefixes:
    """The one owner of prefix sharing; writes `Sequence.cached_tokens`.

    A sequence whose beginning a slot knows gets that slot as it is (nothing of it is left over),
    or a slot of its own that shares the cells of the beginning. Where the beginning is still being
    computed the sequence follows: after each step it shares what its leader has computed, so
    requests that arrive together compute a common prefix once.
    """

    def __init__(self, cells: Cells, backend: Backend) -> None:
        self._cells = cells
        self._backend = backend
        self._following: dict[Sequence, _Following] = {}

    def match(self, sequence: Sequence, running: Iterable[Sequence]) -> Match | None:
        """The slot that knows the longest beginning of a sequence which waits.

        One token is left over, because computing it gives the logits. None where all rows must be
        computed: each row's logits are wanted, or the sequence is suspect and depends on nobody.
        """
        if sequence.prompt_logprobs is not None or sequence.is_suspect:
            return None
        tokens = sequence.tokens[: sequence.num_known - 1]
        best: Match | None = None
        most = 0
        for slot, num_known in self._knowers(running):
            limit = min(num_known, len(tokens))
            # Cheap tests first: most slots differ early, or cannot beat the best.
            if limit <= most or slot.tokens[most] != tokens[most]:
                continue
            common = _num_common(slot.tokens[:limit], tokens[:limit])
            if common > most and self._is_useful(slot, common):
                best, most = Match(slot, common), common
        return best

    def slot_for(self, sequence: Sequence, match: Match | None) -> Slot:
        """A slot for a sequence that is to run; `follow` then shares what is there already."""
        cells = self._cells
        if match is None:
            return cells.take(sequence.tokens)
        source, count = match
        if not source.is_running:
            cells.touch(source)
            # Nothing of it is left over, or no other slot is left: take it as it is.
            if count == source.length or cells.num_idle_slots == 1:
                if count < source.length:
                    cells.cut(source, count)
                cells.adopt(source, sequence.tokens)
                _count_hit(sequence, count)
                return source
        self._following[sequence] = _Following(source, source.tokens, count)
        return cells.take(sequence.tokens)

    def is_following(self, sequence: Sequence) -> bool:
        """Whether the sequence needs no rows for now, because its leader computes for both."""
        return sequence in self._following

    def num_unshared(self, sequence: Sequence) -> int:
        """Known tokens that the sequence still has to compute itself."""
        following = self._following.get(sequence)
        done = max(sequence.num_computed, following.until if following else 0)
        return sequence.num_known - done

    def follow_all(self) -> None:
        """`follow` for each sequence that follows another, the oldest first."""
        for sequence in list(self._following):
            self.follow(sequence)

    def follow(self, sequence: Sequence) -> None:
        """Share with a sequence what its leader has computed by now, if it follows one."""
        following, slot = self._following.get(sequence), sequence.slot
        if following is None or slot is None:
            return
        leader, tokens, until = following
        if leader.tokens is tokens:
            stop = min(leader.length, until)
            # Where the leader ran ahead its sliding window may have left this place already.
            if stop > slot.length and self._backend.holds(leader.index, slot.length, stop):
                self._cells.share(leader, slot, stop)
                _count_hit(sequence, stop)
            if slot.length == stop < until and leader.is_running:
                return  # the rest is being computed
        del self._following[sequence]

    def leave(self, sequence: Sequence) -> None:
        """A sequence runs no longer: it follows nobody."""
        self._following.pop(sequence, None)

    def keep(self, slot: Slot) -> None:
        """Keep what a sequence that runs no longer leaves in its slot, unless another has it too.

        A state that cannot be cut is no duplicate of a longer one: that cannot be cut to it.
        """
        self._cells.retire(slot)
        if self._backend.cuts_tails:
            for redundant in self._redundant(slot):
                self._cells.clear(redundant)

    def check_integrity(self, running: Iterable[Sequence]) -> None:
        """Raise AssertionError when a sequence that does not run follows another."""
        stray = [s.id for s in self._following.keys() - set(running)]
        if stray:
            raise AssertionError(f"sequences follow others and do not run: {stray}")

    def _knowers(self, running: Iterable[Sequence]) -> Iterator[tuple[Slot, int]]:
        """(slot, how many of its tokens are known), those that are computed already first."""
        for slot in reversed(self._cells.cached):
            yield slot, slot.length
        for sequence in running:
            if sequence.slot is not None:
                yield sequence.slot, sequence.num_known

    def _is_useful(self, slot: Slot, common: int) -> bool:
        """Whether a sequence can go on from the first `common` tokens that a slot knows."""
        if not self._backend.cuts_tails:
            # A state that cannot be cut is of use as a whole or not at all.
            return not slot.is_running and common == slot.length
        computed = min(common, slot.length)
        return not computed or self._backend.holds(slot.index, 0, computed)

    def _redundant(self, slot: Slot) -> list[Slot]:
        """Cached slots that hold only a beginning of this cached slot's tokens.

        This slot itself where a longer cached slot begins with all of it.
        """
        if not slot.length:
            return []
        shorter: list[Slot] = []
        for other in self._cells.cached:
            if other is slot:
                continue
            limit = min(other.length, slot.length)
            if other.tokens[limit - 1] != slot.tokens[limit - 1]:
                continue
            if np.array_equal(other.tokens[:limit], slot.tokens[:limit]):
                if other.length > slot.length:
                    return [slot]
                shorter.append(other)
        return shorter


def _num_common(left: np.ndarray, right: np.ndarray) -> int:
    """How many tokens two arrays of one length have in common from the start."""
    differ = left != right
    return int(differ.argmax()) if differ.any() else len(left)


def _count_hit(sequence: Sequence, count: int) -> None:
    """A sequence found its first `count` tokens in cells that were there already.

    What it computed itself before it was put back is no hit of the cache.
    """
    if not sequence.was_put_back:
        sequence.cached_tokens = min(count, sequence.num_prompt)
