"""What ended requests leave behind: a server that has served much beside a fresh one."""

from __future__ import annotations

from benchmarks.peers.answers import TextRequest, Work, median
from benchmarks.peers.cases.case import LIMIT_S, Sample, Start, median_ttft, whole_answers
from benchmarks.peers.endpoints import Endpoint
from benchmarks.peers.prompts import Prompts
from worker.bench.measure.client import StreamedAnswer

# Tokens of the prompts that end before.
ENDED = (200, 400, 600, 800) * 3
PROMPT, ANSWER = 800, 64
TRIES = 3


def used_server(start: Start, prompts: Prompts) -> Sample:
    """The share of its speed that a server keeps after twelve prompts that have ended.

    `value` is that of reading a prompt of 800 tokens, `writing_kept` that of writing after it.
    The used server and a fresh one are asked in turn, three times; medians.
    """
    fresh: list[StreamedAnswer] = []
    used: list[StreamedAnswer] = []
    with start() as old:
        ended = [TextRequest(prompts.tokens(count), 16) for count in ENDED]
        whole_answers(old, Work(ended, 1, 2 * LIMIT_S))
        for _ in range(TRIES):
            with start() as new:
                fresh.append(_ask(new, prompts))
            used.append(_ask(old, prompts))
    fresh_ttft, used_ttft = median_ttft(fresh), median_ttft(used)
    fresh_rate, used_rate = (median([a.decode_rate for a in found]) for found in (fresh, used))
    return {
        "value": fresh_ttft / max(used_ttft, 1e-9),
        "writing_kept": used_rate / max(fresh_rate, 1e-9),
        "fresh_ttft_s": fresh_ttft,
        "used_ttft_s": used_ttft,
        "fresh_tok_s": fresh_rate,
        "used_tok_s": used_rate,
    }


def _ask(peer: Endpoint, prompts: Prompts) -> StreamedAnswer:
    request = TextRequest(prompts.tokens(PROMPT), ANSWER)
    return whole_answers(peer, Work([request], 1, 2 * LIMIT_S))[0]
