"""What a stream of completion events says, read after it has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from benchmarks.peers.answers import Answer


class _Choice(msgspec.Struct):
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: _Details | None = None


class _Timings(msgspec.Struct):
    predicted_n: int | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Event)


def read_into(answer: Answer, reads: Sequence[tuple[float, bytes]], max_tokens: int) -> None:
    """Fill times and counts from (time, bytes) reads.

    Tokens are counted by usage, else by timings, else by a finish for length, else by events:
    random weights often write bytes that are no text yet, and such a token may bring no event.
    """
    counts: list[int] = []
    for moment, event in _events(reads):
        if event.error:
            answer.error = str(event.error)[:200]
        if event.choices:
            answer.times.append(moment)
            if event.choices[0].finish_reason == "length":
                counts.append(max_tokens)
        if event.timings and event.timings.predicted_n:
            counts.append(event.timings.predicted_n)
        if usage := event.usage:
            counts.append(usage.completion_tokens)
            answer.prompt_tokens = usage.prompt_tokens
            if usage.prompt_tokens_details:
                answer.cached_tokens = usage.prompt_tokens_details.cached_tokens or 0
    answer.tokens = counts[-1] if counts else len(answer.times)


def _events(reads: Sequence[tuple[float, bytes]]) -> Iterator[tuple[float, _Event]]:
    """Events with the time of the read that completed them."""
    rest = b""
    for moment, data in reads:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            body = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and body != b"[DONE]":
                yield moment, _decoder.decode(body)
