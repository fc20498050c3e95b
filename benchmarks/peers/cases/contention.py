"""A peer that shares its machine: with a busy process, with another of its kind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from benchmarks.peers.answers import TextRequest, Work, joint_rate
from benchmarks.peers.cases.case import LIMIT_S, SHORT, Sample, Start, answers_of
from benchmarks.peers.neighbours import busy_neighbour
from benchmarks.peers.prompts import Prompts

# A peer that has collapsed shows it in half a minute.
BUSY_LIMIT_S = 30.0


def busy_machine(start: Start, prompts: Prompts) -> Sample:
    """The share of its idle speed that one stream keeps beside another busy process."""
    requests = [TextRequest(prompts.text(SHORT), 48) for _ in range(2)]
    with start() as peer:
        idle = answers_of(peer, Work(requests[:1], 1, LIMIT_S))[0].decode_rate
        with busy_neighbour():
            busy = answers_of(peer, Work(requests[1:], 1, BUSY_LIMIT_S))[0].decode_rate
    return {"value": busy / max(idle, 1e-9), "idle_tok_s": idle, "busy_tok_s": busy}


def two_processes(start: Start, prompts: Prompts) -> Sample:
    """Two of the peer, one stream each: tokens per second together while both run."""
    works = [Work([TextRequest(prompts.text(SHORT), 64)], 1, LIMIT_S) for _ in range(2)]
    with start() as one, start() as other, ThreadPoolExecutor(2) as pool:
        answers = [found[0] for found in pool.map(answers_of, (one, other), works)]
    return {"value": joint_rate(answers)} | {
        f"rate_{number}": answer.decode_rate for number, answer in enumerate(answers, 1)
    }
