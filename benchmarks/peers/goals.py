"""What the worker has to reach, side by side with its peers in one run."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from benchmarks.peers.answers import median
from benchmarks.peers.cases.case import Case, Sample
from benchmarks.peers.cases.catalog import CASES
from benchmarks.peers.quotients import Quotient, quotient

US, NATIVE, BARE, UNDRAFTED = "worker", "llama-server", "bare", "undrafted"
FLAGGED = "flagged"
CHUNK = 64  # tokens that a shared prompt may be read of again

# case -> peer -> its samples, a round each, or why there are none
Results = dict[str, dict[str, list[Sample]]]


class Goal(msgspec.Struct, frozen=True):
    """One thing to reach.

    field   of our samples
    peer    beside whose `value` ours is put (how many times as good), or None for the figure itself
    bound   at least this, or at most where `is_upper`
    """

    case: str
    text: str
    bound: float
    field: str = "value"
    peer: str | None = None
    is_upper: bool = False

    def reached(self, results: Results) -> float | None:
        """Our figure; None where it was not measured."""
        ours = values_of(results, self.case, US, self.field)
        if not ours or self.peer is None:
            return median(ours) if ours else None
        theirs = values_of(results, self.case, self.peer, self.field)
        return advantage(CASES[self.case], ours, theirs).middle if theirs else None

    def is_met(self, reached: float) -> bool:
        """Whether the bound holds."""
        return reached <= self.bound if self.is_upper else reached >= self.bound


GOALS = (
    Goal("single", "speed / native llama-server", 1, peer=NATIVE),
    Goal("single", "speed / bare loop", 0.95, peer=BARE),
    Goal("eight", "speed / native llama-server", 1, peer=NATIVE),
    Goal("prefix", "speed / native llama-server", 2, peer=NATIVE),
    Goal("stall", "longest gap, s", 0.5, is_upper=True),
    Goal("stall", "long prompt's TTFT / alone", 1.5, field="ttft_to_alone", is_upper=True),
    Goal("busy", "speed kept", 0.45),
    Goal("pair", "speed / native pair", 10, peer=NATIVE),
    Goal("deep1", "speed / native llama-server", 1, peer=NATIVE),
    Goal("deep8", "speed / native llama-server", 1, peer=NATIVE),
    Goal("fifteen", "speed / native llama-server", 1, peer=NATIVE),
    Goal("used", "reading, of what a fresh worker does", 0.97),
    Goal("used", "writing, of what a fresh worker does", 0.97, field="writing_kept"),
    Goal("conversations", "speed / native llama-server", 1.2, peer=NATIVE),
    Goal("conversations-roomy", "speed / native llama-server", 1, peer=NATIVE),
    Goal("restarted", "speed / native llama-server", 2.5, peer=NATIVE),
    Goal("window-eight", "speed / native llama-server", 0.98, peer=NATIVE),
    Goal("window-fifteen", "speed / native llama-server", 0.98, peer=NATIVE),
    Goal("window-deep8", "speed / native llama-server", 0.98, peer=NATIVE),
    Goal("hybrid-eight", "speed / native llama-server", 0.98, peer=NATIVE),
    Goal("hybrid", "tokens from the cache / native llama-server", 1, peer=NATIVE),
    Goal("hybrid", "tokens read again of a shared system prompt", CHUNK, "system_left",
         is_upper=True),
    *(
        Goal(f"vocab-{kind}-{streams}", "speed / native llama-server", bound, peer=NATIVE)
        for kind, bound in (("topk", 1), ("whole", 1), ("penalties", 1), ("logprobs", 1),
                            ("topp", 1.5))
        for streams in (1, 8)
    ),
    *(
        Goal(case, f"speed / {what}", bound, peer=peer)
        for case in ("session", "session3")
        for what, bound, peer in (
            ("native llama-server", 1 / 0.55, NATIVE), ("its best flags", 1 / 0.9, FLAGGED),
        )
    ),
    Goal("drafts-repeat", "speed / without guesses", 1.5, peer=UNDRAFTED),
    Goal("drafts-plain", "speed / without guesses", 0.99, peer=UNDRAFTED),
    Goal("edits", "speed / native llama-server", 2.2, peer=NATIVE),
    Goal("edits", "speed / its best flags", 1.05, peer=FLAGGED),
    Goal("edits", "speed again / its best flags", 1.05, "again", peer=FLAGGED),
    Goal("prose", "speed / native llama-server", 0.99, peer=NATIVE),
    Goal("edits8", "speed / its best flags", 1.3, peer=FLAGGED),
    Goal("prose8", "speed / native llama-server", 1, peer=NATIVE),
    Goal("draft-model", "speed / without guesses", 1.3, peer=UNDRAFTED),
)  # fmt: skip


def advantage(case: Case, ours: Sequence[float], theirs: Sequence[float]) -> Quotient:
    """How many times as good our `value` is as theirs, round by round.

    Where a round of one of them is missing, of the medians.
    """
    if len(ours) != len(theirs):
        ours, theirs = [median(ours)], [median(theirs)]
    better, worse = (theirs, ours) if case.is_less_better else (ours, theirs)
    return quotient(better, worse)


def values_of(results: Results, case: str, peer: str, field: str = "value") -> Sequence[float]:
    """A field of all samples, a round each."""
    return [sample[field] for sample in results.get(case, {}).get(peer, [])]
