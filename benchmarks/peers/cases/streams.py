"""Streams that write: one, eight, fifteen, with a prefix in common, with much context each."""

from __future__ import annotations

from benchmarks.peers.answers import TextRequest, Work, joint_rate, median
from benchmarks.peers.cases.case import (
    LIMIT_S,
    SHORT,
    Sample,
    Start,
    answers_of,
    median_ttft,
    throughput,
    whole_answers,
)
from benchmarks.peers.prompts import Prompts

PREFIX = 400  # words, and with the vocabulary of llama-1b tokens
DEEP, DEEPER = 700, 1_500  # tokens
PREFIX_LIMIT_S = 120.0


def one_stream(start: Start, prompts: Prompts) -> Sample:
    """Tokens per second between the first token and the last, the median of three requests."""
    requests = [TextRequest(prompts.text(SHORT), 64) for _ in range(3)]
    with start() as peer:
        answers = answers_of(peer, Work(requests, 1, LIMIT_S))
    rates = [a.decode_rate for a in answers if a.tokens]
    return {"value": median(rates or [0.0]), "ttft_s": median_ttft(answers)}


def eight_streams(start: Start, prompts: Prompts) -> Sample:
    """Sixteen short requests by eight clients; prompts count in the time, not in the tokens."""
    return _short_requests(start, prompts, clients=8, count=16)


def fifteen_streams(start: Start, prompts: Prompts) -> Sample:
    """The same by fifteen clients, thirty requests."""
    return _short_requests(start, prompts, clients=15, count=30)


def _short_requests(start: Start, prompts: Prompts, *, clients: int, count: int) -> Sample:
    requests = [TextRequest(prompts.text(SHORT), 48) for _ in range(count)]
    with start() as peer:
        return throughput(answers_of(peer, Work(requests, clients, LIMIT_S)))


def shared_prefix(start: Start, prompts: Prompts) -> Sample:
    """Sixteen requests by eight clients, with a prefix in common that the peer has not seen."""
    prefix = prompts.text(PREFIX)
    requests = [TextRequest(f"{prefix} {prompts.text(SHORT)}", 48) for _ in range(16)]
    with start() as peer:
        return throughput(answers_of(peer, Work(requests, 8, PREFIX_LIMIT_S)))


def one_deep_stream(start: Start, prompts: Prompts) -> Sample:
    """Tokens per second of one stream with 1,500 tokens of context."""
    return _deep_streams(start, prompts, count=1, depth=DEEPER)


def eight_deep_streams(start: Start, prompts: Prompts) -> Sample:
    """Tokens per second of eight streams with 700 tokens of context each, while all write."""
    return _deep_streams(start, prompts, count=8, depth=DEEP)


def _deep_streams(start: Start, prompts: Prompts, *, count: int, depth: int) -> Sample:
    """The prompts are read before and asked for again, so that the streams start together and none
    of them has ended when the last one starts.
    """
    contexts = [prompts.tokens(depth) for _ in range(count)]
    with start() as peer:
        read = [TextRequest(context, 1) for context in contexts]
        first = whole_answers(peer, Work(read, count, 2 * LIMIT_S))
        write = [TextRequest(context, 64) for context in contexts]
        answers = answers_of(peer, Work(write, count, 2 * LIMIT_S))
    return {
        "value": joint_rate(answers),
        "read_s": max(a.ended for a in first) - min(a.sent for a in first),
        "ttft_s": median_ttft(answers),
        "prompt_tokens": median([a.prompt_tokens for a in answers]),
        "cached_tokens": median([a.cached_tokens for a in answers]),
    }
