"""One job of a fit in a process of its own: `python -m worker.bench.fit.child`.

It leaves the CPUs to others, such as workers that serve here.
"""

from __future__ import annotations

import contextlib
import os
import select

import msgspec

from worker import log
from worker.bench.fit.harm import rounding_seconds, weigh
from worker.bench.fit.jobs import (
    FitJob,
    MatrixJob,
    MixScoreJob,
    ProbeJob,
    RoundingSpeedJob,
    WeighJob,
)
from worker.bench.fit.matrix import make_matrix
from worker.bench.fit.probes import probe
from worker.bench.fit.score import score_file
from worker.bench.stages import Progress, StageFrame, send_section
from worker.child import Parent

_NICE = 5


def main() -> None:
    """Do the job that is sent."""
    parent = Parent()
    log.configure("console", "error")
    os.nice(_NICE)
    asked = parent.receive()
    if asked is None:
        return
    job: FitJob = msgspec.json.decode(asked, type=FitJob)
    if not isinstance(job, MatrixJob):
        parent.leave_with()

    def send(frame: StageFrame) -> None:
        parent.send(msgspec.json.encode(frame))

    def report(share: float) -> None:
        with contextlib.suppress(BrokenPipeError):  # a matrix is kept also without its parent
            send(Progress(share=share))

    waiting = select.poll()
    waiting.register(0, select.POLLIN)

    def work() -> object:
        match job:
            case MatrixJob():
                return make_matrix(job, report, lambda: bool(waiting.poll(0)))
            case RoundingSpeedJob():
                return rounding_seconds(job)
            case WeighJob():
                return weigh(job, report)
            case ProbeJob():
                return probe(job, report)
            case MixScoreJob():
                return score_file(job, report)

    send_section(send, work)


if __name__ == "__main__":
    main()
