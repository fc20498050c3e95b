"""What the samples of a run say: sound, a leak, or that it was too short to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from checks.soak.slope import Slope, slope_of
from checks.soak.soaked import DraftSlot

MB = 1_000_000
# What may be more at last than at first: a heartbeat is on its way now and then, and pools of
# threads grow to their size when there is need.
COUNTED = {"descriptors": 4, "threads": 16, "temp_files": 0}
IDLE = ("live_cells", "running", "waiting", "requests")


class Soaking(msgspec.Struct, frozen=True):
    """The verdict of a run.

    outcome       "sound"; "leak": something is left behind or went wrong; "short": the samples
                  cannot tell whether memory grows by less than the limit
    slope         MB of anonymous memory an hour after the warm-up; None: too few samples
    per_thousand  kB for each thousand clients after the warm-up
    reasons       what is wrong, a sentence each
    """

    outcome: Literal["sound", "leak", "short"]
    slope: Slope | None
    per_thousand: float | None
    reasons: list[str]


def judged(
    samples: Sequence[DraftSlot], warm_up: float, limit: float, disk_limit: int, wrong: Counter[str]
) -> Soaking:
    """warm_up: seconds; limit: MB an hour; disk_limit: bytes; wrong: what clients complained of.

    A leak is a growth above the limit that is no accident. Sound is a growth that is below it with
    all that it may be.
    """
    later = [sample for sample in samples if sample.seconds >= warm_up]
    reasons = [f"{count} x {text}" for text, count in wrong.items()]
    for name in IDLE:
        most = max((getattr(sample, name) for sample in samples), default=0)
        reasons += [f"{name}: {most} while nobody asked for anything"] * bool(most)
    for name, spare in COUNTED.items():
        reasons += _left_over(name, [getattr(sample, name) for sample in later], spare)
    if (most := max((sample.folder_bytes for sample in samples), default=0)) > disk_limit:
        reasons.append(f"the cache's folder had {most / MB:.1f} MB of {disk_limit / MB:.1f}")
    memory = [sample.anonymous / MB for sample in later]
    slope = slope_of([sample.seconds / 3600 for sample in later], memory)
    by_clients = slope_of([sample.clients / 1e6 for sample in later], memory)
    is_short = slope is None or slope.high > limit
    if slope is not None and slope.middle > limit and slope.low > 0:
        reasons.append(f"memory grows by {slope.middle:.2f} MB an hour, and {limit:g} is allowed")
    outcome = "leak" if reasons else "short" if is_short else "sound"
    return Soaking(outcome, slope, by_clients and by_clients.middle, reasons)


def _left_over(name: str, counts: list[int], spare: int) -> list[str]:
    """Whether the least of the last quarter is above the most of the first by more than `spare`."""
    quarter = len(counts) // 4
    if not quarter:
        return []
    before, after = max(counts[:quarter]), min(counts[-quarter:])
    if after <= before + spare:
        return []
    return [f"{name}: {before} at most in the first quarter, {after} at least in the last"]
