"""Sharing of prefixes: what is known already of a prompt, and who waits for whom to compute it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from worker.cache.state import BLOCK
from worker.cache.store import Found
from worker.engine.backend import Backend
from worker.engine.kv import keeper
from worker.engine.kv.cells import Cells
from worker.engine.kv.ends import PromptEnds
from worker.engine.kv.keeper import Keeper
from worker.engine.scoring import ScoredSequence
from worker.engine.sequence import Reuse, Sequence
from worker.engine.slot import Slot
from worker.engine.stats import Stats

# Tokens before a place where prompts branched.
_EARLIER = 4


class Match(NamedTuple):
    """Who knows a prompt's first `num_tokens`; 0: nobody knows any.

    slot   has computed them or is going to; None where they are kept outside of the KV cache
    found  what is kept of the prompt; None where nothing is
    withheld  see `Reuse`
    """

    num_tokens: int
    slot: Slot | None
    found: Found | None
    withheld: tuple[int, str] = (0, "")


class _Following(NamedTuple):
    """A sequence leaves the tokens up to position `until` to the slot `leader`.

    tokens: the leader's; the slot has another array once it belongs to another sequence
    """

    leader: Slot
    tokens: np.ndarray
    until: int


class Prefixes:
    """The one owner of prefix sharing; counts what is looked up and found.

    A sequence whose beginning is known gets, whichever knows most of it,

    - a cached slot as it is, cut to what both have in common;
    - a slot of its own with what a running or cached slot has of it. Where the beginning is still
      being computed the sequence follows: it gets all of it when its leader is there, so requests
      that arrive together compute a common prefix once;
    - a slot of its own with the state that was kept outside of the KV cache.
    """

    def __init__(
        self, cells: Cells, backend: Backend, kept: Keeper, ends: PromptEnds, stats: Stats
    ) -> None:
        self._cells = cells
        self._ends = ends
        self._backend = backend
        self._keeper = kept
        self._stats = stats
        self._following: dict[Sequence, _Following] = {}

    def match(self, sequence: Sequence, running: list[Sequence]) -> Match:
        """Who knows the longest beginning of a sequence which waits.

        One token is left over, because computing it gives the logits, where these were not kept of
        a prompt that is the same (`end`). Nobody where all rows must
        be computed: each row's logits are wanted, or the sequence is suspect and depends on nobody.
        Where nobody runs and it does not go on from all that is there, it gets what wide steps
        computed and leaves as much as a wide step needs: so its rows are computed by the same
        kernels as if nobody knew any, and it says the same. Not so where nobody could tell, where
        that would be more than a piece to read, or with states that are of use only as they were
        saved.
        """
        sequence.end = self._ends.find(sequence)
        if not sequence.num_shareable or sequence.is_suspect:
            return Match(0, None, None, (sequence.num_known - 1, "scored"))
        tokens = sequence.tokens[: sequence.shareable(sequence.num_shareable)]
        best: Slot | None = None
        most = 0
        withheld = (0, "")
        for slot, num_known in self._knowers(running):
            limit = sequence.prompt.num_alike(slot.prompt, min(num_known, len(tokens)))
            is_wider = best is not None and slot.num_wide > best.num_wide
            least = most if is_wider else most + 1
            # Cheap tests first: most slots differ early, or cannot beat the best.
            if limit < least:
                continue
            if limit > most and slot.tokens[most] != tokens[most]:
                continue
            common = _num_common(slot.tokens[:limit], tokens[:limit])
            common = sequence.shareable(common)
            if common >= least and self._is_useful(slot, common):
                best, most = slot, common
            elif common > max(most, withheld[0]):
                withheld = common, self._hindrance(slot, common)
        found = self._find(sequence, tokens)
        known = (most, found.num_tokens if found is not None else self._keeper.num_slow)
        if (
            not running
            and not self._backend.shape.needs_rest
            and not isinstance(sequence, ScoredSequence)  # which pauses behind its state
            and not sequence.was_put_back  # it comes back as it was
            and sequence.says_the_same
        ):
            kernels, length = self._backend.kernels, sequence.num_prompt
            if best is not None and most != best.length:
                alike = sequence.prompt.whole(kernels.start(most, length, best.num_wide))
                most = alike if most - alike <= kernels.piece else most
            if found is not None and not found.is_whole:
                # A block may hold what was written behind a prompt too.
                most_kept = found.num_tokens // BLOCK * BLOCK if kernels.wide else found.num_tokens
                kept = kernels.start(found.num_tokens, length, most_kept)
                found = found._replace(num_tokens=kept)
        is_kept = found is not None and found.num_tokens > most
        count = found.num_tokens if found is not None and is_kept else most
        if max(known) > count:
            withheld = max(known), "stall" if self._keeper.num_slow > count else "pieces"
        elif found is not None and found.num_common >= max(withheld[0], count + 1):
            withheld = found.num_common, self._missing_state(found.num_common)
        withheld = withheld if withheld[0] > count else (0, "")
        if count < sequence.num_known:
            sequence.end = None
        return Match(count, None if is_kept or not most else best, found, withheld)

    def slot_for(
        self,
        sequence: Sequence,
        match: Match,
        running: Iterable[Sequence] = (),
        waiting: Iterable[Sequence] = (),
    ) -> Slot:
        """A slot for a sequence that is to run; `follow` then shares what is there already.

        running, waiting: the others, whose beginnings it may compute
        """
        if sequence.is_counted and sequence.num_shareable and not sequence.is_copy:
            self._stats.looked_up_tokens += sequence.num_prompt
        if sequence.is_counted:
            num_anew = self._stats.num_rearranged + self._stats.num_emptied
            sequence.reuse = Reuse(
                None, match.withheld, num_anew, self._keeper.keeps, sequence.tokens
            )
        if match.slot is not None:
            slot = self._slot_beside(sequence, match.slot, match.num_tokens)
        else:
            slot = self._cells.take(sequence.tokens)
            self._bring(sequence, slot, match.found)
        slot.prompt = sequence.prompt
        slot.add_mark(sequence.prompt.begin)
        if isinstance(sequence, ScoredSequence):
            branches = (
                sequence.branches if self._backend.shape.needs_rest else sequence.branches[:1]
            )
            for branch in branches:
                slot.add_mark(branch)
        elif self._keeper.marks_branches:
            self._keeper.mark(slot, sequence, _branches(sequence, match.found, running, waiting))
            if match.slot is not None:
                self._keeper.save_shared(slot)
        return slot

    def _slot_beside(self, sequence: Sequence, source: Slot, count: int) -> Slot:
        """A slot for a sequence of which another slot knows the first `count` tokens."""
        cells = self._cells
        if not source.is_running:
            cells.touch(source)
            # What is cut off is kept elsewhere, or there is no other slot for what is left.
            if (
                count == source.length
                or source.is_saved
                or self._shares_exactly
                or cells.num_idle_slots == 1
            ):
                if count < source.length:
                    cells.cut(source, count)
                cells.adopt(source, sequence.tokens)
                self._count_shared(sequence, count)
                return source
        elif self._shares_exactly:
            source.add_mark(count)
        self._following[sequence] = _Following(source, source.tokens, count)
        return cells.take(sequence.tokens, spared=source)

    def is_following(self, sequence: Sequence) -> bool:
        """Whether the sequence needs no rows for now, because its leader computes for both."""
        return sequence in self._following

    def is_awaited(self, sequence: Sequence) -> bool:
        """Whether one that is no line of a batch waits for what this line computes."""
        slot = sequence.slot
        return any(
            following.leader is slot and not follower.is_batch
            for follower, following in self._following.items()
        )

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
        """Share with a sequence what its leader has, if that is all that it is going to have."""
        following, slot = self._following.get(sequence), sequence.slot
        if following is None or slot is None:
            return
        leader, tokens, until = following
        if leader.tokens is tokens:
            if leader.is_running and leader.length < until:
                return  # the rest is being computed
            stop = min(leader.length, until)
            if self._can_share(leader, stop) and self._cells.share(leader, slot, stop):
                self._count_shared(sequence, stop)
                self._keeper.save_shared(slot)
        del self._following[sequence]
        if not slot.length:  # what the leader had may have left the KV cache
            found = self._find(sequence, sequence.tokens[: sequence.num_shareable])
            self._bring(sequence, slot, found)

    def _find(self, sequence: Sequence, tokens: np.ndarray) -> Found | None:
        """What is kept of these tokens, of as many as the sequence can go on from."""
        must = sequence.was_put_back
        found = self._keeper.find(tokens, sequence.prompt, must=must)
        if found is not None and isinstance(sequence, ScoredSequence):
            count = sequence.shareable(found.num_tokens)
            if count < found.num_tokens:
                return self._keeper.find(tokens[:count], sequence.prompt, must=must)
        return found

    def _bring(self, sequence: Sequence, slot: Slot, found: Found | None) -> None:
        """Put what is kept of a sequence into its empty slot."""
        if found is not None and found.num_tokens:
            count, num_read = self._keeper.restore(slot, found)
            hit = _hit(sequence, count)
            from_disk = min(num_read, hit)
            if not sequence.is_copy:
                self._stats.disk_tokens += from_disk
                self._stats.memory_tokens += hit - from_disk
            if hit:
                _note(sequence, source="disk" if from_disk else "memory")
            elif count < found.num_tokens:
                _note(sequence, withheld=(found.num_tokens, "unreadable"))

    def _count_shared(self, sequence: Sequence, count: int) -> None:
        hit = _hit(sequence, count)
        self._stats.shared_tokens += 0 if sequence.is_copy else hit
        if hit:
            _note(sequence, source="cells")

    def shorten(self, sequence: ScoredSequence, slot: Slot) -> None:
        """A suffix has its scores, and its slot is cached: what stands behind the last branch is of
        use to nobody."""
        length = sequence.branches[-1]
        if slot.length > length:
            self._cut_or_clear(slot, length)
            slot.is_saved = length > sequence.branches[0]  # its state was at the first one

    def forget_branches(self, state: np.ndarray) -> None:
        """All suffixes of a state have their scores: of what they shared only the state stays.

        Else a suffix that comes once more would be computed beside others than at first.
        """
        count = len(state)
        for slot in [each for each in self._cells.cached if each.length > count]:
            is_suffix = slot.prompt.checkpoints == (count,) and slot.is_saved
            if is_suffix and np.array_equal(slot.tokens[:count], state):
                self._cut_or_clear(slot, count)

    def _cut_or_clear(self, slot: Slot, length: int) -> None:
        """Leave a cached slot its first tokens, where they are of use without the others."""
        position = slot.prompt.position(length)
        if self._shares_exactly or not self._backend.holds(slot.index, 0, position):
            self._cells.clear(slot)
        else:
            self._cells.cut(slot, length)
            slot.is_saved = False

    def leave(self, sequence: Sequence) -> None:
        """A sequence runs no longer: it follows nobody."""
        self._following.pop(sequence, None)

    def check_integrity(self, running: Iterable[Sequence]) -> None:
        """Raise AssertionError when a sequence that does not run follows another."""
        stray = [s.id for s in self._following.keys() - set(running)]
        if stray:
            raise AssertionError(f"sequences follow others and do not run: {stray}")

    @property
    def _shares_exactly(self) -> bool:
        """Whether a slot can be shared only with all that it holds at that moment.

        So with a state that cannot be cut, and where a copy has no more of a sliding window's
        cells than the slot itself needs next.
        """
        backend = self._backend
        return not backend.shape.cuts_tails or (backend.shape.needs_rest and not backend.unified)

    def _knowers(self, running: Iterable[Sequence]) -> Iterator[tuple[Slot, int]]:
        """(slot, how many of its tokens are known), those that are computed already first."""
        for slot in reversed(self._cells.cached):
            yield slot, slot.length
        for sequence in running:
            if sequence.slot is not None:
                yield sequence.slot, sequence.num_known

    def _is_useful(self, slot: Slot, common: int) -> bool:
        """Whether a sequence can go on from the first `common` tokens that a slot knows."""
        if slot.is_running and self._shares_exactly:
            return slot.length <= common and common >= keeper.WORTH_A_STOP
        if not self._backend.shape.cuts_tails:
            return common == slot.length
        computed = min(common, slot.length)
        position = slot.prompt.position(computed)
        return not computed or self._backend.holds(slot.index, 0, position)

    def _hindrance(self, slot: Slot, common: int) -> str:
        """Why a sequence cannot go on from them, see `Reuse`."""
        if slot.is_running and self._shares_exactly:
            return "in_use" if slot.length > common else "too_short"
        return "window" if self._backend.shape.cuts_tails else self._missing_state(common)

    def _missing_state(self, common: int) -> str:
        """Why no state after so many tokens is kept, see `Reuse`."""
        if not self._backend.shape.needs_rest:
            return "pieces"
        return "checkpoint" if common >= keeper.APART else "too_short"

    def _can_share(self, leader: Slot, stop: int) -> bool:
        if not stop or (self._shares_exactly and stop != leader.length):
            return False
        return self._backend.holds(leader.index, 0, leader.prompt.position(stop))


def _branches(
    sequence: Sequence,
    found: Found | None,
    running: Iterable[Sequence],
    waiting: Iterable[Sequence],
) -> set[int]:
    """After how many of its tokens others go on differently, those that come and those that were.

    Who comes next may differ from who was a little sooner, as questions have their first words in
    common: of what was seen the place is a few tokens before. Files tell whole blocks only, which
    is early enough.
    """
    seen = {_alike(sequence, other) for other in running}
    if found is not None:
        seen.add(found.num_common)
    coming = {_alike(sequence, other) for other in waiting if other.num_shareable}
    early = {count - (_EARLIER if count % BLOCK else 0) for count in seen}
    return {sequence.prompt.whole(place) for place in coming | early}


def _alike(one: Sequence, other: Sequence) -> int:
    """How many first tokens of two sequences are computed in the same way."""
    limit = one.prompt.num_alike(other.prompt, min(one.num_known, other.num_known) - 1)
    return _num_common(one.tokens[:limit], other.tokens[:limit]) if limit > 0 else 0


def _num_common(left: np.ndarray, right: np.ndarray) -> int:
    """How many tokens two arrays of one length have in common from the start."""
    differ = left != right
    return int(differ.argmax()) if differ.any() else len(left)


def _note(sequence: Sequence, **more: Any) -> None:
    if sequence.reuse is not None and sequence.is_counted:
        sequence.reuse = msgspec.structs.replace(sequence.reuse, **more)


def _hit(sequence: Sequence, count: int) -> int:
    """A sequence found its first `count` tokens computed already: how many prompt tokens that are.

    What it computed itself before it was put back is no hit of the cache.
    """
    if not sequence.is_counted:
        return 0
    sequence.cached_tokens = min(count, sequence.num_prompt)
    return sequence.cached_tokens
