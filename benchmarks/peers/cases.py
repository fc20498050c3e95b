"""What is measured: each case takes running peers and returns one sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from benchmarks.peers.answers import (
    TextRequest,
    Work,
    joint_rate,
    longest_gap,
    median,
    total_rate,
)
from benchmarks.peers.endpoints import Endpoint, HttpPeer
from benchmarks.peers.neighbours import busy_neighbour
from benchmarks.peers.processes import PeerError
from benchmarks.peers.prompts import Prompts
from worker.bench.measure.client import StreamedAnswer, StreamedRequest

SHORT = 12  # words, and with this vocabulary tokens
PREFIX = 400
LONG = 1400
DEEP = 700
LIMIT_S = 60.0
# A peer that has collapsed shows it in half a minute.
BUSY_LIMIT_S = 30.0
PREFIX_LIMIT_S = 120.0

# One measurement: `value` is what the case is about, the rest explains it.
Sample = dict[str, float]


class Case(msgspec.Struct, frozen=True):
    """One row of the comparison.

    measure    (running peers of one kind, prompts) -> sample
    processes  how many of the peer run at once
    is_less_better  the value is a time
    needs_http, needs_parallel  peers without it are left out
    """

    name: str
    title: str
    unit: str
    measure: Callable[[Sequence[Endpoint], Prompts], Sample]
    processes: int = 1
    is_less_better: bool = False
    needs_http: bool = False
    needs_parallel: bool = False


def one_stream(peers: Sequence[Endpoint], prompts: Prompts) -> Sample:
    """Tokens per second between the first token and the last, the median of three requests."""
    requests = [TextRequest(prompts.text(SHORT), 64) for _ in range(3)]
    answers = _answers(peers[0], Work(requests, 1, LIMIT_S))
    rates = [a.decode_rate for a in answers if a.tokens]
    return {"value": median(rates or [0.0]), "ttft_s": _median_ttft(answers)}


def eight_streams(peers: Sequence[Endpoint], prompts: Prompts) -> Sample:
    """Sixteen short requests by eight clients; prompts count in the time, not in the tokens."""
    requests = [TextRequest(prompts.text(SHORT), 48) for _ in range(16)]
    return _throughput(_answers(peers[0], Work(requests, 8, LIMIT_S)))


def shared_prefix(peers: Sequence[Endpoint], prompts: Prompts) -> Sample:
    """The same with a prefix in common that the peer has not seen before."""
    prefix = prompts.text(PREFIX)
    requests = [TextRequest(f"{prefix} {prompts.text(SHORT)}", 48) for _ in range(16)]
    return _throughput(_answers(peers[0], Work(requests, 8, PREFIX_LIMIT_S)))


def long_prompt(peers: Sequence[Endpoint], prompts: Prompts) -> Sample:
    """How long four short streams stand still while a long prompt is read."""
    sample = _arrival(peers, prompts, streams=4, words=SHORT)
    return {"value": sample["longest_gap_s"], **sample}


def deep_streams(peers: Sequence[Endpoint], prompts: Prompts) -> Sample:
    """How long a long prompt waits beside seven streams that hold much themselves."""
    sample = _arrival(peers, prompts, streams=7, words=DEEP)
    return {"value": sample["ttft_s"], **sample}


def _arrival(
    peers: Sequence[Endpoint], prompts: Prompts, *, streams: int, words: int
) -> dict[str, float]:
    """A long prompt arrives beside so many streams, each with a prompt of so many words."""
    client = peers[0]
    assert isinstance(client, HttpPeer)
    alone = _whole(client.run(client.request(TextRequest(prompts.text(LONG), 4), LIMIT_S)))
    with ThreadPoolExecutor(streams) as pool:
        others = [
            client.request(TextRequest(prompts.text(words), 512), 3 * LIMIT_S)
            for _ in range(streams)
        ]
        running = [pool.submit(client.run, other) for other in others]
        try:
            _wait_until_all_run(others)
            arrival = client.run(client.request(TextRequest(prompts.text(LONG), 4), LIMIT_S))
        finally:
            for other in others:
                other.stop()
    answers = [_whole(future.result()) for future in running]
    stop = arrival.sent + arrival.ttft
    return {
        "longest_gap_s": longest_gap(answers, arrival.sent, stop),
        "ttft_s": arrival.ttft,
        "alone_s": alone.ttft,
        "ttft_to_alone": arrival.ttft / alone.ttft,
        "streams_tok_s": sum(arrival.sent < t < stop for a in answers for t in a.times)
        / (stop - arrival.sent),
        "prompt_tokens": float(arrival.prompt_tokens),
    }


def busy_machine(peers: Sequence[Endpoint], prompts: Prompts) -> Sample:
    """The share of its idle speed that one stream keeps beside another busy process."""
    requests = [TextRequest(prompts.text(SHORT), 48) for _ in range(2)]
    idle = _answers(peers[0], Work(requests[:1], 1, LIMIT_S))[0].decode_rate
    with busy_neighbour():
        busy = _answers(peers[0], Work(requests[1:], 1, BUSY_LIMIT_S))[0].decode_rate
    return {"value": busy / max(idle, 1e-9), "idle_tok_s": idle, "busy_tok_s": busy}


def two_processes(peers: Sequence[Endpoint], prompts: Prompts) -> Sample:
    """Two of the peer, one stream each: tokens per second together while both run."""
    works = [Work([TextRequest(prompts.text(SHORT), 64)], 1, LIMIT_S) for _ in peers]
    with ThreadPoolExecutor(len(peers)) as pool:
        answers = [found[0] for found in pool.map(_answers, peers, works)]
    return {"value": joint_rate(answers)} | {
        f"rate_{number}": answer.decode_rate for number, answer in enumerate(answers, 1)
    }


CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case("single", "1 stream", "tok/s", one_stream),
        Case("eight", "8 streams, 16 short requests", "tok/s", eight_streams),
        Case(
            "prefix", "8 clients, 16 requests, 400 tokens in common", "tok/s", shared_prefix
        ),
        Case(
            "stall", "longest gap of 4 streams while a 1,400-token prompt arrives", "s",
            long_prompt, is_less_better=True, needs_http=True, needs_parallel=True,
        ),
        Case(
            "deep", "first token of a 1,400-token prompt beside 7 streams of 700 tokens", "s",
            deep_streams, is_less_better=True, needs_http=True, needs_parallel=True,
        ),
        Case("busy", "speed kept beside a busy process", "of idle", busy_machine),
        Case("pair", "two processes, one stream each, together", "tok/s", two_processes, 2),
    )
}  # fmt: skip


def _answers(peer: Endpoint, work: Work) -> list[StreamedAnswer]:
    """Send and check."""
    return [_whole(answer) for answer in peer.answer_all(work)]


def _whole(answer: StreamedAnswer) -> StreamedAnswer:
    """An answer that was cut off is a measurement, one with an error is none."""
    if answer.error:
        raise PeerError(f"failed a request: {answer.error}")
    return answer


def _throughput(answers: Sequence[StreamedAnswer]) -> Sample:
    return {
        "value": total_rate(answers),
        "ttft_s": _median_ttft(answers),
        "whole": float(sum(a.is_whole for a in answers)),
        "prompt_tokens": float(sum(a.prompt_tokens for a in answers)),
        "cached_tokens": float(sum(a.cached_tokens for a in answers)),
    }


def _median_ttft(answers: Sequence[StreamedAnswer]) -> float:
    """Of those that got a token; the longest wait where nobody did."""
    waits = [a.ttft for a in answers if a.times]
    return median(waits) if waits else max(a.ttft for a in answers)


def _wait_until_all_run(streams: Sequence[StreamedRequest]) -> None:
    deadline = time.monotonic() + 2 * LIMIT_S
    while any(stream.num_reads < 4 for stream in streams):
        if time.monotonic() > deadline:
            raise PeerError(f"did not get {len(streams)} streams under way")
        time.sleep(0.01)
