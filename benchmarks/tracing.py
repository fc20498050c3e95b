"""What it costs to say why a prompt was read again: CPU time of a request, beside a full memory.

python -m benchmarks.tracing
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from worker.engine.request import Prompt, Request
from worker.engine.sequence import Delta, Reuse, Timings
from worker.requests.prompts import MOST_BYTES, ChatParts, RecentPrompts, Turn
from worker.requests.tracer import PromptTracer

SPELLED = [b" w%d" % token for token in range(4096)]
ROUNDS = 40
LENGTHS = (300, 3_000, 30_000)


def request_of(tokens: np.ndarray) -> Request:
    return Request(id="r", prompt=Prompt(tuple(tokens.tolist())))


def delta_of(tokens: np.ndarray, cached: int, now: float) -> Delta:
    reuse = Reuse("cells" if cached else None, (0, ""), 0, True, tokens)
    times = Timings(now, now, now, now + 0.5)
    return Delta("r", finish_reason="stop", cached_tokens=cached, timings=times, reuse=reuse)


def parts_of(tokens: np.ndarray) -> ChatParts:
    """A message of a hundred tokens each."""
    ids: list[int] = tokens.tolist()
    said = [
        b"".join(SPELLED[token] for token in ids[at : at + 100]).decode()
        for at in range(0, len(ids), 100)
    ]
    turns = tuple(
        Turn("user" if n % 2 else "assistant", hash(each), each) for n, each in enumerate(said)
    )
    return ChatParts(turns, 0, "".join(said))


def measure(length: int, changes_at: Callable[[int], int]) -> float:
    """Milliseconds of CPU for one request, the median; others share all of their beginning."""
    rng, recent, now = np.random.default_rng(1), RecentPrompts(), 1.0
    base = rng.integers(0, len(SPELLED), length).astype(np.int32)
    place, spent = changes_at(length), list[float]()
    for number in range(ROUNDS + min(64, MOST_BYTES // (4 * length))):
        tokens = base.copy()
        tokens[place] = number  # a clock
        request, parts, now = request_of(tokens), parts_of(tokens), now + 1
        delta = delta_of(tokens, place // 64 * 64, now)
        began = time.process_time()
        tracer = PromptTracer(recent, "", [request], 1, parts, SPELLED)
        tracer.end(delta)
        spent.append(time.process_time() - began)
        assert tracer.trace is not None
        assert tracer.trace.reason == "prompt_changed" or not number
    return 1e3 * float(np.median(spent[-ROUNDS:]))


def main() -> None:
    print("| prompt | differs early | differs late |\n|---|---|---|")
    for length in LENGTHS:
        early, late = (measure(length, lambda n, by=by: n // by) for by in (20, 2))
        print(f"| {length:,} tokens | {early:.2f} ms | {late:.2f} ms |")


if __name__ == "__main__":
    main()
