"""On a GPU beside llama-server: `python -m benchmarks.offload LLAMA_SERVER [--shape NAME]`.

One stream and eight write 200 tokens behind prompts of 600, drawn anew each time, from a model of
random weights in Q4_K_M. Both peers get the same requests to /completion and take turns. The first
round is not told. Guesses are as by default. Exit code 1: this build sees no GPU.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx

from benchmarks.adapters import asked, beside
from benchmarks.models import write_model
from benchmarks.shapes import SHAPES
from worker.llama import library

PROMPT, TOKENS, SLOTS = 600, 200, 8


def ask(url: str, number: int, round_: int) -> float:
    """Write one text; seconds until its first token came."""
    body = {
        "prompt": random.Random(f"{round_} {number}").choices(range(300, 2_000), k=PROMPT),
        "n_predict": TOKENS, "temperature": 0, "ignore_eos": True, "cache_prompt": False,
        "stream": True,
    }  # fmt: skip
    began, first, last = time.monotonic(), 0.0, {}
    with httpx.stream("POST", f"{url}/completion", json=body, timeout=600) as answer:
        for line in answer.raise_for_status().iter_lines():
            if line.startswith("data: "):
                first = first or time.monotonic() - began
                last = json.loads(line[6:])
    if last["timings"]["predicted_n"] != TOKENS:
        raise SystemExit(f"{url} wrote {last['timings']['predicted_n']} tokens")
    return first


def main() -> None:
    """Start both, measure in turns, print."""
    given = asked(__doc__)
    if not any(device.offloads for device in library.devices()):
        sys.exit("This build sees no GPU: make install BACKEND=cuda")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        model = write_model(Path(name) / "m.gguf", SHAPES[given.shape], "Q4_K_M")
        words = ["--model", str(model), "-c", "16384", "-np", str(SLOTS), "-ngl", "99",
                 "-t", str(given.threads)]  # fmt: skip
        urls = stack.enter_context(beside(given.llama_server, words, Path(name)))
        for streams in (1, SLOTS):
            for round_ in range(given.rounds + 1):
                for peer, url in urls.items():
                    began = time.monotonic()
                    with ThreadPoolExecutor(streams) as pool:
                        firsts = list(pool.map(partial(ask, url, round_=round_), range(streams)))
                    per_s = streams * TOKENS / (time.monotonic() - began)
                    if round_:
                        first = statistics.median(firsts)
                        print(
                            f"{streams} {peer:13} {per_s:8.0f} tokens/s, first {first:6.3f} s",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
