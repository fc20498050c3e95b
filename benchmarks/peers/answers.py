"""What is asked of a peer, and the figures made from its answers."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from worker.bench.measure.client import StreamedAnswer


class TextRequest(msgspec.Struct, frozen=True):
    """One completion of exactly `max_tokens` tokens, greedy where `fields` say nothing else.

    prompt  text or token ids
    always  the id of the token that is written each time; None: what the model says
    fields  more fields of the request's body
    """

    prompt: str | list[int]
    max_tokens: int
    always: int | None = None
    fields: Mapping[str, object] = {}


class Work(msgspec.Struct, frozen=True):
    """Requests to be sent in order, at most `clients` at once; each is cut off after the limit."""

    requests: list[TextRequest]
    clients: int
    limit_s: float


def total_rate(answers: Sequence[StreamedAnswer]) -> float:
    """Tokens per second from the first request to the last token, prompts included."""
    elapsed = max(a.ended for a in answers) - min(a.sent for a in answers)
    return sum(a.tokens for a in answers) / max(elapsed, 1e-9)


def joint_rate(answers: Sequence[StreamedAnswer]) -> float:
    """Tokens per second of all together, while every one of them was between its tokens.

    A token of which the bytes are no text yet brings no event: each event counts as many tokens
    as the events of its answer do on average.
    """
    if any(len(a.times) < 2 for a in answers):
        return sum(a.decode_rate for a in answers)
    begin, stop = max(a.times[0] for a in answers), min(a.times[-1] for a in answers)
    if stop <= begin:  # they took turns
        return total_rate(answers)
    tokens = sum(
        sum(begin < time <= stop for time in a.times) * a.tokens / len(a.times) for a in answers
    )
    return tokens / (stop - begin)


def longest_gap(answers: Sequence[StreamedAnswer], begin: float, stop: float) -> float:
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
