"""Conversations that come back: eight people take turns, each sends all that was said before.

    turn 1   [320 tokens] → 32
    turn 2   [320, answer, 96 new] → 32
    turn 4   [... 704 tokens in all] → 32

One request runs at a time, and the eight follow each other in the same order in every turn: when
a conversation comes back, seven others have been served since. The answer is always the same
token (a bias says so), so that all peers are sent the same history and none reads an answer again
because its text falls into other tokens.
"""

from __future__ import annotations

import contextlib

from benchmarks.peers.answers import TextRequest, Work, median
from benchmarks.peers.cases.case import LIMIT_S, Sample, Start, whole_answers
from benchmarks.peers.prompts import Prompts
from worker.bench.measure.client import StreamedAnswer

CONVERSATIONS = 8
TURNS = 4
OPENING, QUESTION, ANSWER = 320, 96, 32  # tokens
ANSWER_TOKEN = 1000


def conversations(start: Start, prompts: Prompts) -> Sample:
    """Seconds for all turns of all conversations, in one server."""
    return _all_turns(start, prompts, restarts=False)


def restarted_conversations(start: Start, prompts: Prompts) -> Sample:
    """The same with a new server for each turn; starting and stopping is not in the seconds."""
    return _all_turns(start, prompts, restarts=True)


def _all_turns(start: Start, prompts: Prompts, *, restarts: bool) -> Sample:
    histories = [prompts.tokens(OPENING) for _ in range(CONVERSATIONS)]
    turns: list[list[StreamedAnswer]] = []
    with contextlib.ExitStack() as running:
        peer = running.enter_context(start())
        for number in range(TURNS):
            if number:
                for history in histories:
                    history += [ANSWER_TOKEN] * ANSWER + prompts.tokens(QUESTION)
            if number and restarts:
                running.close()
                peer = running.enter_context(start())
            requests = [TextRequest([*h], ANSWER, always=ANSWER_TOKEN) for h in histories]
            turns.append(whole_answers(peer, Work(requests, 1, LIMIT_S)))
    later = [answer for turn in turns[1:] for answer in turn]
    return {
        "value": sum(turn[-1].ended - turn[0].sent for turn in turns),
        "first_turn_s": turns[0][-1].ended - turns[0][0].sent,
        "later_ttft_s": median([a.ttft for a in later]),
        "worst_ttft_s": max(a.ttft for a in later),
        "prompt_tokens": float(sum(a.prompt_tokens for a in later)),
        "cached_tokens": float(sum(a.cached_tokens for a in later)),
        **{f"ttft_{i}_s": median([a.ttft for a in turn]) for i, turn in enumerate(turns, 1)},
    }
