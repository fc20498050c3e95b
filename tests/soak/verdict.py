"""What the samples of a run say: sound, a leak, or that it was too short to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from tests.soak.slope import Slope, slope_of
from tests.soak.soaked import Held

MB = 1_000_000
COUNTED = ("descriptors", "threads", "temp_files")
IDLE = ("live_cells", "running", "waiting", "requests")


class Soaking(msgspec.Struct, frozen=True):
    """The verdict of a run.

    outcome      "sound"; "leak": something is left behind, or something went wrong; "short": the
                 samples cannot tell whether memory grows by less than the limit
    slope        MB of anonymous memory an hour after the warm-up; None: too few samples
    per_thousand kB a thousand clients, the middle of the slope over clients
    reasons      what is wrong, a sentence each
    """

    outcome: Literal["sound", "leak", "short"]
    slope: Slope | None
    per_thousand: float | None
    reasons: list[str]


def judged(
    samples: Sequence[Held], warm_up: float, limit: float, disk_limit: int, wrong: Counter[str]
) -> Soaking:
    """warm_up: seconds; limit: MB an hour; disk_limit: bytes; wrong: what clients complained of."""
    later = [sample for sample in samples if sample.seconds >= warm_up]
    reasons = [f"{count} x {text}" for text, count in wrong.items()]
    for name in IDLE:
        most = max((getattr(sample, name) for sample in samples), default=0)
        if most:
            reasons.append(f"{name}: {most} while nobody asked for anything")
    for name in COUNTED:
        reasons += _grown(name, [getattr(sample, name) for sample in later])
    most = max((sample.folder_bytes for sample in samples), default=0)
    if most > disk_limit:
        reasons.append(f"the cache's folder had {most / MB:.1f} MB of {disk_limit / MB:.1f}")
    hours = [sample.seconds / 3600 for sample in later]
    memory = [sample.anonymous / MB for sample in later]
    slope = slope_of(hours, memory)
    by_clients = slope_of([sample.clients / 1e6 for sample in later], memory)
    short = slope is None or slope.high > limit
    if slope is not None and slope.middle > limit and slope.low > 0:
        short = False
        reasons.append(f"memory grows by {slope.middle:.2f} MB an hour, and {limit:g} is allowed")
    return Soaking(
        "leak" if reasons else "short" if short else "sound",
        slope,
        None if by_clients is None else by_clients.middle,
        reasons,
    )


def _grown(name: str, counts: list[int]) -> list[str]:
    """Left over: the least of the last quarter is more than the most of the first."""
    quarter = len(counts) // 4
    if not quarter:
        return []
    before, after = max(counts[:quarter]), min(counts[-quarter:])
    return (
        [f"{name}: {before} at most at first, {after} at least at last"] if after > before else []
    )
