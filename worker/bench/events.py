"""What a run tells while it goes on. Nothing in this package prints."""

from __future__ import annotations

import msgspec

from worker.bench.results import LevelReport, Report


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Where the run is: `level` None is the machine itself.

    share    of this stage, 0 to 1
    done     of the whole run, 0 to 1
    left_s   seconds that it will still take; None until something has been timed
    """

    level: str | None
    stage: str
    share: float
    done: float
    left_s: float | None


class LevelDone(msgspec.Struct, frozen=True, kw_only=True):
    """A level is measured, as far as it could be."""

    level: LevelReport


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know about the run."""

    text: str


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The run is over."""

    report: Report


Event = Step | LevelDone | Note | Finished
