"""Adapters beside llama-server: `python -m benchmarks.adapters LLAMA_SERVER [--shape NAME]`.

Eight streams write at once from prompts of their own, with one adapter for all, and with four sets:
the model alone and three adapters. Both get the same requests to /completion, which name a set by
`lora`, and take turns. A row has the tokens a second of all streams, round by round.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from benchmarks.models import write_model
from benchmarks.peers.endpoints import HOST
from benchmarks.peers.processes import PeerError, free_port, started
from benchmarks.shapes import SHAPES
from tests.support.models.adapters import CHANGED, lora_gguf

STREAMS, TOKENS, PROMPT = 8, 64, 64
SETS: dict[str, list[list[dict[str, Any]]]] = {
    "one set": [[{"id": 0, "scale": 1.0}]],
    "four sets": [[], *([{"id": number, "scale": 1.0}] for number in range(3))],
}
READY_S = 600.0


def ask(url: str, sets: list[list[dict[str, Any]]], number: int, start: int) -> int:
    """Write in one stream; its tokens."""
    body = {
        "prompt": random.Random(start + number).choices(range(5, 205), k=PROMPT),
        "n_predict": TOKENS, "temperature": 0, "ignore_eos": True, "cache_prompt": False,
        "lora": sets[number % len(sets)],
    }  # fmt: skip
    answer = httpx.post(f"{url}/completion", json=body, timeout=600).raise_for_status().json()
    return int(answer["timings"]["predicted_n"])


def wait(url: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """Until it answers. Raises PeerError where its process ends before, or it takes too long."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            raise PeerError(f"{url} ended with exit code {process.returncode}")
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise PeerError(f"{url} is not ready after {READY_S:.0f} s")


@contextmanager
def beside(llama_server: str, words: Sequence[str], folder: Path) -> Generator[dict[str, str]]:
    """The worker and llama-server with the same words of their command lines, both ready: their
    addresses. folder: of their logs

    Raises PeerError where one does not get ready.
    """
    begun: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
    with ExitStack() as stack:
        for peer, command in (
            ("worker", [sys.executable, "-m", "worker", "serve"]),
            ("llama-server", [llama_server, "--no-webui"]),
        ):
            port = free_port()
            command = [*command, *words, "--host", HOST, "--port", str(port)]
            process = stack.enter_context(started(command, folder / f"{peer}.log"))
            begun[peer] = f"http://{HOST}:{port}", process
        for url, process in begun.values():
            wait(url, process)
        yield {peer: url for peer, (url, _) in begun.items()}


def asked(text: str | None) -> argparse.Namespace:
    """What such a comparison is told on its command line. text: its description"""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("llama_server")
    parser.add_argument("--shape", choices=SHAPES, default="llama-125m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    """Start both, measure in turns, print."""
    given = asked(__doc__)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        model = write_model(folder / "m.gguf", SHAPES[given.shape], "Q8_0")
        files = [
            lora_gguf(model, seed=seed, rank=16, changed=CHANGED).write(folder / f"{seed}.gguf")
            for seed in range(3)
        ]
        words = ["--model", str(model), "-c", "4096", "-np", str(STREAMS),
                 "-t", str(given.threads), "--lora", ",".join(map(str, files)),
                 "--lora-init-without-apply"]  # fmt: skip
        urls = stack.enter_context(beside(given.llama_server, words, folder))
        for what, sets in SETS.items():
            for round_ in range(given.rounds + 1):  # the first one is not told
                for peer, url in urls.items():
                    began = time.monotonic()
                    with ThreadPoolExecutor(STREAMS) as pool:
                        one = partial(ask, url, sets, start=1_000 * round_)
                        tokens = sum(pool.map(one, range(STREAMS)))
                    per_s = tokens / (time.monotonic() - began)
                    if round_:
                        print(f"{what:10} {peer:13} {per_s:8.1f} tokens/s", flush=True)


if __name__ == "__main__":
    main()
