"""Chats with a model whose state cannot be cut: how much of each prompt comes from the cache.

The history holds another, shorter answer than the one that was written, as where a template takes
the thoughts out. So each prompt leaves the one before it where that one's answer began.
"""

from __future__ import annotations

from benchmarks.peers.cases.case import Sample, Start, over_http
from benchmarks.peers.endpoints import ChatTurn
from benchmarks.peers.prompts import Prompts

SYSTEM, QUESTION, KEPT = 400, 60, 12  # words, and with the vocabulary of lfm2-350m tokens
ANSWER = 24  # tokens
TURNS = 4
OTHERS = 3


def stripped_chats(start: Start, prompts: Prompts) -> Sample:
    """The share of its later prompts that one chat gets from the cache.

    `system_left` is what three further chats that have only the system prompt in common read of
    it again, the most of the three in tokens.
    """
    system = ChatTurn("system", prompts.text(SYSTEM))
    sample: Sample = {"value": 0.0}
    cached = asked = seconds = 0.0
    with start() as peer:
        client = over_http(peer)
        history = [system]
        for turn in range(1, TURNS + 1):
            history.append(ChatTurn("user", prompts.text(QUESTION)))
            reply = client.chat(history, ANSWER)
            history.append(ChatTurn("assistant", prompts.text(KEPT)))
            if turn > 1:
                sample[f"cached_{turn}"] = float(reply.cached_tokens)
                sample[f"of_{turn}"] = float(reply.prompt_tokens)
                cached += reply.cached_tokens
                asked += reply.prompt_tokens
                seconds += reply.seconds
        left: list[int] = []
        for _ in range(OTHERS):
            question = ChatTurn("user", prompts.text(QUESTION))
            left.append(SYSTEM - client.chat([system, question], ANSWER).cached_tokens)
    more = {"later_turns_s": seconds, "system_left": float(max(0, *left))}
    return sample | more | {"value": cached / max(asked, 1.0)}
