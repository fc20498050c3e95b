"""Pictures beside llama-server: `python -m benchmarks.pictures LLAMA_SERVER [--shape NAME]`.

Four streams write; after a second somebody sends a picture that nobody has seen yet (336 × 336
pixels, 576 vectors, an encoder of 12 layers and 768 numbers). A row has, for each server in turn,
the longest gap between two tokens of a stream, what the streams wrote a second before the picture
and while it was read, and when the answer to it began.
"""

from __future__ import annotations

import base64
import json
import tempfile
import threading
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import httpx

from benchmarks.adapters import asked, beside
from benchmarks.models import write_model
from benchmarks.shapes import SHAPES
from tests.support.models.ggufs import CHAT_TEMPLATE
from tests.support.models.projectors import png, projector_gguf

STREAMS, TOKENS, SIDE, PATCH = 4, 400, 336, 14
BEFORE_S = 2.0


def stream(url: str, number: int, times: list[float]) -> None:
    """Write, and note when each token came."""
    body = {
        "prompt": [5 + (number * 97 + place) % 200 for place in range(64)], "n_predict": TOKENS,
        "temperature": 0, "ignore_eos": True, "cache_prompt": False, "stream": True, "seed": 1,
    }  # fmt: skip
    with httpx.stream("POST", f"{url}/completion", json=body, timeout=600) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data: "))
        times.extend(time.monotonic() for _ in lines)


def show(url: str, seed: int) -> float:
    """Send a picture; seconds until the answer begins."""
    data = base64.b64encode(png(SIDE, SIDE, seed)).decode()
    shown = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    body = {
        "messages": [{"role": "user", "content": [shown, {"type": "text", "text": "What is it?"}]}],
        "max_tokens": 8, "temperature": 0, "stream": True, "seed": 1,
    }  # fmt: skip
    began = time.monotonic()
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=600) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {") and "delta" in json.loads(line[6:])["choices"][0]:
                return time.monotonic() - began
    raise SystemExit(f"{url} did not answer the picture")


def measure(url: str, seed: int) -> str:
    """One row."""
    times: list[list[float]] = [[] for _ in range(STREAMS)]
    threads = [
        threading.Thread(target=stream, args=(url, number, each))
        for number, each in enumerate(times)
    ]
    for thread in threads:
        thread.start()
    while any(len(each) < 2 for each in times):
        time.sleep(0.01)
    time.sleep(BEFORE_S)
    began = time.monotonic()
    first = show(url, seed)
    ended = time.monotonic()
    for thread in threads:
        thread.join()
    gap = max(b - a for each in times for a, b in pairwise(each))
    before = sum(began - BEFORE_S <= at < began for each in times for at in each) / BEFORE_S
    beside = sum(began <= at < ended for each in times for at in each) / (ended - began)
    return f"{gap * 1e3:10.0f} ms {before:8.1f} {beside:8.1f} tokens/s {first:8.2f} s"


def main() -> None:
    """Start both, measure in turns, print."""
    given = asked(__doc__)
    shape = SHAPES[given.shape]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        model = write_model(folder / "m.gguf", shape, "Q8_0")
        projector = projector_gguf(
            side=SIDE, patch=PATCH, seen=768, heads=12, inner=3072, layers=12, width=shape.embedding
        ).write(folder / "mmproj-m.gguf")
        words = ["--model", str(model), "--mmproj", str(projector), "-c", "8192",
                 "-np", str(STREAMS + 1), "-t", str(given.threads), "--jinja",
                 "--chat-template", CHAT_TEMPLATE]  # fmt: skip
        urls = stack.enter_context(beside(given.llama_server, words, folder))
        print(f"{'':16}longest gap   before  meanwhile      answer after")
        for round_ in range(given.rounds + 1):  # the first one is not told
            for peer, url in urls.items():
                row = measure(url, round_)
                if round_:
                    print(f"{peer:13}{row}", flush=True)


if __name__ == "__main__":
    main()
