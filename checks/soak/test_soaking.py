"""Real workers under clients of all kinds for some seconds: one is sound, one leaks on purpose."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

import pytest

from checks.soak.run import DISK_LIMIT, Soak, SoakPlan, run
from checks.soak.verdict import Soaking, judged

# MB an hour: a worker that was just started fills its caches with a quarter of it, and four times
# as much is planted.
LIMIT = 25_000.0
WARM_UP_S = 1.5


def plan(*program: str) -> SoakPlan:
    """As many samples as the slope needs, however slow the machine is."""
    return SoakPlan(
        [sys.executable, *program], None, minutes=0.1, rate=6.0, every=0.4, seed=1, settle=0.1,
        least=18,
    )  # fmt: skip


async def both() -> list[Soak]:
    """A worker, and one that leaks, beside each other."""
    plans = plan("-P", "-m", "worker"), plan("-m", "checks.soak.leaking")
    return await asyncio.gather(*(run(one, lambda _: None) for one in plans))


def verdict_of(soak: Soak) -> Soaking:
    """Without what a busy machine makes clients complain of."""
    return judged(soak.samples, WARM_UP_S, LIMIT, DISK_LIMIT, Counter())


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="this system has no smaps_rollup"
)
def test_a_planted_leak() -> None:
    """It fails the run, by memory and by descriptors; the same run without it does not fail."""
    sound, leaking = asyncio.run(both())
    assert sound.wrong == {}
    assert sound.samples[-1].clients > sound.samples[0].clients == 0
    assert {what.partition(" ")[0] for what in sound.came} >= {"good", "left", "bad"}
    assert verdict_of(sound).reasons == []
    verdict = verdict_of(leaking)
    assert verdict.outcome == "leak"
    told = [reason.partition(" ")[0] for reason in verdict.reasons]
    assert told == ["descriptors:", "memory"]
