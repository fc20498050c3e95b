"""Jobs run in a child as a run runs them."""

from __future__ import annotations

from contextlib import closing
from typing import TypeVar

import msgspec

from worker.bench.job import Failure, Job, Progress
from worker.bench.process import ask

T = TypeVar("T")


def answer_of(job: Job, kind: type[T]) -> T:
    """The answer; AssertionError with the reason where there is none."""
    with closing(ask(job)) as messages:
        for message in messages:
            if isinstance(message, Failure):
                raise AssertionError(message.message)
            if not isinstance(message, Progress):
                return msgspec.json.decode(message.value, type=kind)
    raise AssertionError("no answer")
