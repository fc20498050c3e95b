"""Streams whose tokens are guessed: by the text itself, or by a model made for it."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.peers.answers import TextRequest, Work, joint_rate, median
from benchmarks.peers.cases.case import LIMIT_S, Sample, Start, median_ttft, whole_answers
from benchmarks.peers.prompts import Prompts

_PROMPT, _TOKENS = 16, 128
_ROUNDS = 3


def repeated_text(start: Start, prompts: Prompts) -> Sample:
    """Tokens a second of one stream that writes one token again and again."""
    (token,) = prompts.tokens(1)
    return _streams(start, lambda: TextRequest(prompts.tokens(_PROMPT), _TOKENS, token), 1)


def drawn_text(start: Start, prompts: Prompts) -> Sample:
    """Of one stream whose tokens are drawn by random weights: nothing comes twice."""
    drawn = {"temperature": 1, "seed": 7}
    return _streams(start, lambda: TextRequest(prompts.tokens(_PROMPT), _TOKENS, fields=drawn), 1)


def guessed_stream(start: Start, prompts: Prompts) -> Sample:
    """Of one stream that a draft model may guess."""
    return _streams(start, lambda: TextRequest(prompts.tokens(_PROMPT), _TOKENS), 1)


def four_guessed_streams(start: Start, prompts: Prompts) -> Sample:
    """Of four such streams together."""
    return _streams(start, lambda: TextRequest(prompts.tokens(_PROMPT), _TOKENS), 4)


def _streams(start: Start, ask: Callable[[], TextRequest], count: int) -> Sample:
    """The median of three rounds of `count` requests, after one that is not counted."""
    with start() as peer:
        rounds = [
            whole_answers(peer, Work([ask() for _ in range(count)], count, 2 * LIMIT_S))
            for _ in range(1 + _ROUNDS)
        ][1:]
    return {
        "value": median([joint_rate(answers) for answers in rounds]),
        "ttft_s": median([median_ttft(answers) for answers in rounds]),
    }
