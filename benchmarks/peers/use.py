"""Servers that people have used before they are measured, and that several cases share."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.peers.cases.case import Case
from benchmarks.peers.endpoints import HttpPeer
from benchmarks.peers.servers import Setup
from benchmarks.talkers import Talkers

TALKERS = 4  # at once, to each server


def alike(cases: Sequence[Case], setups: Mapping[str, Setup]) -> list[list[Case]]:
    """Neighbours that the same servers serve."""
    pairs = itertools.groupby(cases, lambda case: (setups[case.name], dict(case.worker_options)))
    return [list(found) for _, found in pairs]


def use(endpoints: Sequence[HttpPeer], case: Case, minutes: float) -> None:
    """Let people talk to all servers at the same time."""
    stream = case.cells // case.slots
    talks = [Talkers(peer.url, TALKERS, case.cells, stream) for peer in endpoints]
    try:
        time.sleep(60 * minutes)
    finally:
        # At once: who is stopped last would have been talked to for longer.
        with ThreadPoolExecutor(len(talks)) as pool:
            for talk in talks:
                pool.submit(talk.stop)
        for talk in talks:
            totals = talk.totals
            errors = [f"{count} x {what}" for what, count in totals.errors.items()]
            said = [f"{totals.answers.total()} answers", f"{totals.hit_rate:.0%} cached", *errors]
            print("used:", *said, file=sys.stderr, flush=True)
