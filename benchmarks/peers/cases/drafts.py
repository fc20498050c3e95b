"""Streams whose tokens are guessed: by the text itself, by what was read, or by a model for it."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.peers.answers import TextRequest, Work, joint_rate, median, total_rate
from benchmarks.peers.cases.case import LIMIT_S, Sample, Start, median_ttft, whole_answers
from benchmarks.peers.prompts import Prompts

_PROMPT, _TOKENS = 16, 128
_ROUNDS = 3
_CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
_DRAWN = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}


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


def edited_text(count: int) -> Callable[[Start, Prompts], Sample]:
    """Tokens a second of `count` streams that each repeat a text with a word changed; and of the
    same again. The answer is begun, because small models begin another one."""

    def ask(prompts: Prompts) -> TextRequest:
        words = prompts.passage(120)
        changed = f'with "{prompts.text(1)}" in the place of "{max(words[12:60], key=len)}"'
        wish = f"Repeat this text, {changed}:\n\n{' '.join(words)}"
        return TextRequest(_CHAT.format(wish) + " ".join(words[:8]), _TOKENS)

    return lambda start, prompts: _twice(start, lambda: ask(prompts), count)


def told_text(count: int) -> Callable[[Start, Prompts], Sample]:
    """Of `count` streams that each tell a story that is drawn, as chats do."""

    def ask(prompts: Prompts) -> TextRequest:
        wish = f"Tell a story in which these words come: {' '.join(prompts.passage(6))}"
        return TextRequest(_CHAT.format(wish), _TOKENS, fields=_DRAWN)

    return lambda start, prompts: _twice(start, lambda: ask(prompts), count)


def _twice(start: Start, ask: Callable[[], TextRequest], count: int) -> Sample:
    """The medians of three rounds of `count` new requests, each of which is sent twice."""
    rate = joint_rate if count == 1 else total_rate
    first: list[float] = []
    again: list[float] = []
    with start() as peer:
        for _ in range(_ROUNDS):
            asked = [ask() for _ in range(count)]
            for rates in (first, again):
                rates.append(rate(whole_answers(peer, Work(asked, count, 2 * LIMIT_S))))
    return {"value": median(first), "again": median(again)}


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
