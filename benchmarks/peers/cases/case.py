"""What a case is, and what its modules have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import msgspec

from benchmarks.peers.answers import Work, median, total_rate
from benchmarks.peers.endpoints import Endpoint, HttpPeer
from benchmarks.peers.processes import PeerError
from benchmarks.peers.prompts import Prompts
from worker.bench.measure.client import StreamedAnswer

SHORT = 12  # words, and with the vocabulary of llama-1b tokens
LIMIT_S = 60.0

# One measurement: `value` is what the case is about, the rest explains it.
Sample = dict[str, float]
# Starts one of the peer, ready and warm; the process ends with the context.
Start = Callable[[], AbstractContextManager[Endpoint]]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the comparison.

    measure         (how to start the peer, prompts) -> sample
    shape           name in `benchmarks.shapes` of the model
    is_reciting     the model says what the stories of `benchmarks.session` prescribe
    needs_model     that the user names: one that does what it is told, in ChatML
    is_shape_fixed  another model that the user names does not replace it
    cells, slots    of each server; a slot's share must hold the longest request
    worker_options  more of the worker's options with their values; `{folder}` in a value becomes
                    an empty folder, `{draft}` a model that guesses what the case's model writes.
                    A worker that does not know the option is started without it
    is_less_better  the value is a time
    needs_http, needs_parallel  peers without it are left out
    has_several_servers  of a peer, one after the other or side by side
    """

    name: str
    title: str
    unit: str
    measure: Callable[[Start, Prompts], Sample]
    shape: str = "llama-1b"
    is_reciting: bool = False
    needs_model: bool = False
    is_shape_fixed: bool = False
    cells: int = 8 * 2048
    slots: int = 8
    worker_options: Mapping[str, str] = {}
    is_less_better: bool = False
    needs_http: bool = False
    needs_parallel: bool = False
    has_several_servers: bool = False

    @property
    def has_drafts(self) -> bool:
        """Whether the case is about guesses."""
        return self.is_reciting or any(name.startswith("--draft") for name in self.worker_options)

    @property
    def has_draft_model(self) -> bool:
        """Whether another model guesses them."""
        return "--draft-model" in self.worker_options


def answers_of(peer: Endpoint, work: Work) -> list[StreamedAnswer]:
    """Send all requests; some answers may be cut off. Raises PeerError where one failed."""
    return [without_error(answer) for answer in peer.answer_all(work)]


def whole_answers(peer: Endpoint, work: Work) -> list[StreamedAnswer]:
    """The same where half the work is no measurement: a cut answer is a PeerError too."""
    answers = answers_of(peer, work)
    if not all(answer.is_whole for answer in answers):
        raise PeerError(f"did not finish {len(answers)} requests in {work.limit_s:.0f} s")
    return answers


def without_error(answer: StreamedAnswer) -> StreamedAnswer:
    """An answer that was cut off is a measurement, one with an error is none (PeerError)."""
    if answer.error:
        raise PeerError(f"failed a request: {answer.error}")
    return answer


def over_http(peer: Endpoint) -> HttpPeer:
    """A peer of a case that `needs_http`."""
    assert isinstance(peer, HttpPeer)
    return peer


def throughput(answers: Sequence[StreamedAnswer]) -> Sample:
    """Tokens per second of all answers, and how they came about."""
    return {
        "value": total_rate(answers),
        "ttft_s": median_ttft(answers),
        "whole": float(sum(a.is_whole for a in answers)),
        "prompt_tokens": float(sum(a.prompt_tokens for a in answers)),
        "cached_tokens": float(sum(a.cached_tokens for a in answers)),
    }


def median_ttft(answers: Sequence[StreamedAnswer]) -> float:
    """Of those that got a token; the longest wait where nobody did."""
    waits = [a.ttft for a in answers if a.times]
    return median(waits) if waits else max(a.ttft for a in answers)
