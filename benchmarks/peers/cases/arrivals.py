"""Long prompts arrive beside streams that write."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.peers.answers import TextRequest, Work, longest_gap
from benchmarks.peers.cases.case import (
    LIMIT_S,
    SHORT,
    Sample,
    Start,
    median_ttft,
    over_http,
    whole_answers,
    without_error,
)
from benchmarks.peers.processes import PeerError
from benchmarks.peers.prompts import Prompts
from worker.bench.measure.client import StreamedRequest

LONG, DEEP, SEVERAL = 1400, 700, 1000  # tokens


def long_prompt(start: Start, prompts: Prompts) -> Sample:
    """How long four short streams stand still while a long prompt is read."""
    sample = _arrival(start, prompts, streams=4, depth=SHORT)
    return {"value": sample["longest_gap_s"], **sample}


def deep_streams(start: Start, prompts: Prompts) -> Sample:
    """How long a long prompt waits beside seven streams that hold much themselves."""
    sample = _arrival(start, prompts, streams=7, depth=DEEP)
    return {"value": sample["ttft_s"], **sample}


def eight_long_prompts(start: Start, prompts: Prompts) -> Sample:
    """Tokens a second, read and written, while eight long prompts arrive beside one stream."""
    with start() as peer, ThreadPoolExecutor(1) as pool:
        client = over_http(peer)
        stream = client.request(TextRequest(prompts.text(SHORT), 1024), 3 * LIMIT_S)
        running = pool.submit(client.run, stream)
        asked = [TextRequest(prompts.tokens(SEVERAL), 16) for _ in range(8)]
        try:
            _wait_until_all_run([stream])
            answers = whole_answers(client, Work(asked, 8, 3 * LIMIT_S))
        finally:
            stream.stop()
        beside = without_error(running.result())
    sent, ended = min(a.sent for a in answers), max(a.ended for a in answers)
    read = max(a.sent + a.ttft for a in answers)
    written = sum(sent < t < ended for t in beside.times)
    tokens = sum(a.prompt_tokens + a.tokens for a in answers) + written
    return {
        "value": tokens / (ended - sent),
        "ttft_s": median_ttft(answers),
        "worst_ttft_s": max(a.ttft for a in answers),
        "first_ttft_s": min(a.ttft for a in answers),
        "longest_gap_s": longest_gap([beside], sent, read),
        "stream_tok_s": written / (ended - sent),
        "prompt_tokens": float(sum(a.prompt_tokens for a in answers)),
    }


def _arrival(start: Start, prompts: Prompts, *, streams: int, depth: int) -> dict[str, float]:
    """A long prompt arrives beside so many streams, each with a prompt of so many tokens."""
    with start() as peer, ThreadPoolExecutor(streams) as pool:
        client = over_http(peer)
        alone = client.run(client.request(TextRequest(prompts.tokens(LONG), 4), LIMIT_S))
        alone = without_error(alone)
        others = [
            client.request(TextRequest(prompts.tokens(depth), 512), 3 * LIMIT_S)
            for _ in range(streams)
        ]
        running = [pool.submit(client.run, other) for other in others]
        try:
            _wait_until_all_run(others)
            arrival = client.run(client.request(TextRequest(prompts.tokens(LONG), 4), LIMIT_S))
        finally:
            for other in others:
                other.stop()
        answers = [without_error(future.result()) for future in running]
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


def _wait_until_all_run(streams: Sequence[StreamedRequest]) -> None:
    deadline = time.monotonic() + 2 * LIMIT_S
    while any(stream.num_reads < 4 for stream in streams):
        if time.monotonic() > deadline:
            raise PeerError(f"did not get {len(streams)} streams under way")
        time.sleep(0.01)
