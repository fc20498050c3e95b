"""Jobs run in a child as a run runs them."""

from __future__ import annotations

from contextlib import closing
from typing import TypeVar

import msgspec

from worker.bench.run.runner import ask
from worker.bench.run.stages import Failure, Job, Progress

T = TypeVar("T")


def section_of(job: Job, kind: type[T]) -> T:
    """The job's section; AssertionError with the reason where there is none."""
    with closing(ask(job)) as messages:
        for message in messages:
            if isinstance(message, Failure):
                raise AssertionError(message.message)
            if not isinstance(message, Progress):
                return msgspec.json.decode(message.section, type=kind)
    raise AssertionError("no section")
