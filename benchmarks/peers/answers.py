"""A request, what came back and when, and the figures made from it."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Protocol

import msgspec


class Job(msgspec.Struct, frozen=True):
    """One greedy completion of exactly `max_tokens` tokens."""

    prompt: str
    max_tokens: int


class Work(msgspec.Struct, frozen=True):
    """Jobs to be sent in order, at most `clients` at once, and cut off after the limit."""

    jobs: list[Job]
    clients: int
    limit_s: float


class Answer(msgspec.Struct):
    """Times are seconds of `time.monotonic`, which all processes of a machine share.

    times     arrival of each event that belongs to a token
    tokens    as the peer counts them; of an answer that was cut off, its events
    is_whole  False where it was cut off: by the time limit, or because we had seen enough
    """

    sent: float
    ended: float = 0.0
    times: list[float] = []
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    is_whole: bool = False
    error: str = ""

    @property
    def ttft(self) -> float:
        """Seconds to the first token; until the cut, where none came."""
        return (self.times[0] if self.times else self.ended) - self.sent

    @property
    def decode_rate(self) -> float:
        """Tokens per second after the first one; of a whole answer in tokens, not in events.

        Fewer than two tokens before the cut: those over the whole wait, an upper bound.
        """
        if len(self.times) < 2 or self.tokens < 2:
            return self.tokens / max(self.ended - self.sent, 1e-9)
        return (self.tokens - 1) / max(self.times[-1] - self.times[0], 1e-9)


class Endpoint(Protocol):
    """A running peer."""

    def answer_all(self, work: Work) -> list[Answer]:
        """One answer for each job, in their order."""
        ...


def total_rate(answers: Sequence[Answer]) -> float:
    """Tokens per second from the first request to the last token, prompts included."""
    elapsed = max(a.ended for a in answers) - min(a.sent for a in answers)
    return sum(a.tokens for a in answers) / max(elapsed, 1e-9)


def joint_rate(answers: Sequence[Answer]) -> float:
    """Tokens per second of all together, while every one of them was between its tokens."""
    if any(len(a.times) < 2 for a in answers):
        return sum(a.decode_rate for a in answers)
    begin, stop = max(a.times[0] for a in answers), min(a.times[-1] for a in answers)
    if stop <= begin:  # they took turns
        return total_rate(answers)
    events = sum(begin < time <= stop for a in answers for time in a.times)
    return events / (stop - begin)


def longest_gap(answers: Sequence[Answer], begin: float, stop: float) -> float:
    """Longest wait in seconds between two tokens of one answer that overlaps [begin, stop]."""
    gaps = [0.0]
    for answer in answers:
        ends = [*answer.times, answer.ended]  # the wait that a cut ended counts as far as it went
        gaps += [
            later - max(earlier, begin)
            for earlier, later in itertools.pairwise(ends)
            if later > begin and earlier < stop
        ]
    return max(gaps)


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)
