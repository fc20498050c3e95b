"""The pause that a client sees when its replica is lost.

A gateway over two workers of a file; a greedy stream of one of them is read up to its 1,000th
token, and its worker is killed. What is measured, in seconds:

pause    from the last token of the one to the next, from the other worker
reading  what a third worker, which knows nothing, takes to read the same text as a prompt
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import Any, NamedTuple

from gguf_fleet.roster import Roster
from tests.support import http
from tests.support.gateways import KEY, gateway_over, member
from tests.support.programs import Server, serving

NUM_TOKENS = 1_000
_PROMPT = "Tell a long story of a fisherman, his boat and the sea."
_OPTIONS = ("--alias", "demo", "-c", "4096", "-np", "4", "--no-page")
_HEADERS = {"Authorization": f"Bearer {KEY}"}
_ENV = {"LLAMA_API_KEY": KEY}


class Pause(NamedTuple):
    """Seconds; see the module."""

    pause: float
    reading: float


def run(file: str, rounds: int) -> None:
    """Print each round."""
    for number in range(rounds):
        with ExitStack() as stack:
            found = _measure(stack, file, number)
        over = found.pause - found.reading
        print(
            f"pause {found.pause:.2f} s, reading {found.reading:.2f} s: {over:+.2f} s", flush=True
        )


def _measure(stack: ExitStack, file: str, number: int) -> Pause:
    options = ("--model", file, *_OPTIONS)
    relayed = [stack.enter_context(serving(*options, "--relayed", env=_ENV)) for _ in range(2)]
    roster = Roster({"demo": "none"})
    roster.publish("demo", [member(f"p{each.pid}", each.url) for each in relayed])
    url = stack.enter_context(gateway_over(roster))
    prompt = f"{number}. {_PROMPT}"
    body = {"model": "demo", "prompt": prompt, "max_tokens": NUM_TOKENS + 50, "temperature": 0,
            "ignore_eos": True, "stream": True}  # fmt: skip
    said, count, lost_at, pause, is_lost = "", 0, 0.0, 0.0, False
    with http.stream("POST", url + "/v1/completions", json=body) as answer:
        for line in answer.iter_lines():
            is_lost |= line == ": another replica goes on"
            if not line.startswith('data: {"id"'):
                continue
            if is_lost:
                pause = time.monotonic() - lost_at
                break
            said += json.loads(line[6:])["choices"][0]["text"]
            count, lost_at = count + 1, time.monotonic()
            if count == NUM_TOKENS:
                _holder(relayed).process.kill()
    assert pause, "the stream ended"
    for each in relayed:
        each.end()
    fresh = stack.enter_context(serving(*options, env=_ENV))
    asked: dict[str, Any] = {"prompt": prompt + said, "n_predict": 1, "temperature": 0}
    timings = http.post(fresh.url + "/completion", json=asked, headers=_HEADERS).json()["timings"]
    assert not timings["cache_n"]
    return Pause(pause, timings["prompt_ms"] / 1e3)


def _holder(servers: list[Server]) -> Server:
    """The one that works on the stream."""
    for server in servers:
        if http.get(server.url + "/v1/requests", headers=_HEADERS).json()["data"]:
            return server
    raise AssertionError("nobody works on it")
