"""Streams that are not greedy, with a vocabulary of 150,000 tokens."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from benchmarks.peers.answers import TextRequest, Work, median
from benchmarks.peers.cases.case import (
    LIMIT_S,
    SHORT,
    Case,
    Sample,
    Start,
    answers_of,
    median_ttft,
    throughput,
)
from benchmarks.peers.prompts import Prompts

SHAPE = "llama-125m-150k"
# Every field is named, because the peers' defaults differ.
WHOLE = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
KINDS: dict[str, Mapping[str, object]] = {
    "topk": WHOLE | {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    "whole": WHOLE,
    "penalties": WHOLE | {"repeat_penalty": 1.1, "repeat_last_n": 64, "frequency_penalty": 0.2},
    "logprobs": {"temperature": 0, "logprobs": 5},
    "topp": WHOLE | {"top_p": 0.95},
}


def one_stream(fields: Mapping[str, object], start: Start, prompts: Prompts) -> Sample:
    """Tokens per second between the first token and the last, the median of three requests."""
    requests = [TextRequest(prompts.text(SHORT), 64, fields=fields) for _ in range(3)]
    with start() as peer:
        answers = answers_of(peer, Work(requests, 1, LIMIT_S))
    rates = [a.decode_rate for a in answers if a.tokens]
    return {"value": median(rates or [0.0]), "ttft_s": median_ttft(answers)}


def eight_streams(fields: Mapping[str, object], start: Start, prompts: Prompts) -> Sample:
    """Sixteen short requests by eight clients; prompts count in the time, not in the tokens."""
    requests = [TextRequest(prompts.text(SHORT), 48, fields=fields) for _ in range(16)]
    with start() as peer:
        return throughput(answers_of(peer, Work(requests, 8, LIMIT_S)))


def vocabulary_cases() -> list[Case]:
    """Each kind of sampling with one stream and with eight."""
    found: list[Case] = []
    for kind, fields in KINDS.items():
        for streams, measure in ((1, one_stream), (8, eight_streams)):
            case = Case(
                name=f"vocab-{kind}-{streams}",
                title=f"150,000 tokens, {kind}, {streams} stream{'s' * (streams > 1)}",
                unit="tok/s",
                measure=partial(measure, fields),
                shape=SHAPE,
                needs_http=True,  # the bare loop is greedy
                needs_parallel=streams > 1,
            )
            found.append(case)
    return found
