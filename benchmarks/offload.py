"""On a GPU beside llama-server: `python -m benchmarks.offload LLAMA_SERVER [--json FILE]`.

Streams write 200 tokens behind prompts that are drawn anew each time, from models of random weights
in Q4_K_M: of 8B, and of 1B. Both peers get the same options and the same requests to /completion,
and take turns. The first round is not told. Draft tokens are as by default. A row has the tokens a
second of all streams, the time to the first token, and the quotient of each round beside its goal.
Behind the first case a traced worker tells what of its steps is Python's. What matters most comes
first, and each row is printed and kept as it comes; --minutes leaves out the cases behind.

`--rehearse` runs all of it on a CPU with next to no tokens; its figures mean nothing.
Exit code 1: this build sees no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import httpx

from benchmarks.adapters import beside
from benchmarks.models import write_model
from benchmarks.shapes import SHAPES
from worker.llama import library

SPARE = 64
WORKER, PEER = "worker", "llama-server"
# Of a rehearsal: tokens that are written, and how many times shorter prompts are.
REHEARSED_TOKENS, SHORTER = 4, 100


@dataclass(frozen=True)
class OffloadCase:
    """What both peers are started with, and what they are asked."""

    name: str
    prompt: int = 600
    tokens: int = 200
    streams: tuple[int, ...] = (1, 8)
    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


CASES = (
    OffloadCase("usual", streams=(1, 8, 32, 64)),
    OffloadCase("long prompts", prompt=2000),
    OffloadCase("cells q8_0", words=("-ctk", "q8_0", "-ctv", "q8_0")),
    OffloadCase("without CUDA graphs", variables={"GGML_CUDA_DISABLE_GRAPHS": "1"}),
)


@dataclass(frozen=True)
class OffloadResult:
    """Rounds of one case, by peer: tokens a second of all streams, seconds to the first token."""

    shape: str
    case: str
    streams: int
    per_s: dict[str, list[float]]
    first_s: dict[str, list[float]]

    @property
    def quotients(self) -> list[float]:
        """The worker's speed over the peer's, of each round."""
        pairs = zip(self.per_s[WORKER], self.per_s[PEER], strict=True)
        return [ours / theirs for ours, theirs in pairs]

    @property
    def goal(self) -> float:
        return 1.1 if self.streams in (1, 8) else 1.0

    def __str__(self) -> str:
        found = sorted(self.quotients)
        middle = statistics.median(found)
        speeds = (f"{statistics.median(self.per_s[peer]):8.0f}" for peer in (WORKER, PEER))
        firsts = (f"{statistics.median(self.first_s[peer]):7.3f}" for peer in (WORKER, PEER))
        verdict = "met" if middle >= self.goal else "missed"
        return (
            f"{self.shape:10} {self.case:20} {self.streams:3} streams: tok/s {' '.join(speeds)}, "
            f"first token s {' '.join(firsts)}, quotient {middle:.2f} ({found[0]:.2f} to "
            f"{found[-1]:.2f}), goal {self.goal} {verdict}"
        )


def ask(url: str, number: int, round_: int, case: OffloadCase) -> float:
    """Write one text; seconds until its first token came."""
    body = {
        "prompt": random.Random(f"{round_} {number}").choices(range(300, 2_000), k=case.prompt),
        "n_predict": case.tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": False,
        "stream": True,
    }  # fmt: skip
    began, first, last = time.monotonic(), 0.0, {}
    with httpx.stream("POST", f"{url}/completion", json=body, timeout=600) as answer:
        for line in answer.raise_for_status().iter_lines():
            if line.startswith("data: "):
                first = first or time.monotonic() - began
                last = json.loads(line[6:])
    if last["timings"]["predicted_n"] != case.tokens:
        raise SystemExit(f"{url} wrote {last['timings']['predicted_n']} tokens")
    return first


def measure(
    urls: Mapping[str, str], shape: str, case: OffloadCase, streams: int, rounds: int
) -> OffloadResult:
    """All rounds, the peers in turn; one round alone is told."""
    result = OffloadResult(shape, case.name, streams, {}, {})
    for round_ in range(rounds + (rounds > 1)):
        for peer, url in urls.items():
            one = partial(ask, url, round_=round_, case=case)
            began = time.monotonic()
            with ThreadPoolExecutor(streams) as pool:
                firsts = list(pool.map(one, range(streams)))
            per_s = streams * case.tokens / (time.monotonic() - began)
            if round_ or rounds == 1:
                result.per_s.setdefault(peer, []).append(per_s)
                result.first_s.setdefault(peer, []).append(statistics.median(firsts))
    return result


@contextmanager
def variables(given: Mapping[str, str]) -> Generator[None]:
    """Inside, processes are started with these."""
    before = dict(os.environ)
    os.environ.update(given)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run_case(
    model: Path, shape: str, case: OffloadCase, given: argparse.Namespace, folder: Path
) -> list[OffloadResult]:
    """Start both with room for the most streams, and measure with each number of them."""
    counts = given.streams or case.streams
    slots = max(counts)
    cells = slots * (case.prompt + case.tokens + SPARE)
    words = ["--model", str(model), "-c", str(cells), "-np", str(slots), "-ngl", given.layers,
             "-t", str(given.threads), *case.words]  # fmt: skip
    results: list[OffloadResult] = []
    with variables(case.variables), beside(given.llama_server, words, folder) as urls:
        for streams in counts:
            results.append(measure(urls, shape, case, streams, given.rounds))
            print(results[-1], flush=True)
    return results


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.offload", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("llama_server")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="(llama3-8b, llama-1b)")
    parser.add_argument("--case", choices=[case.name for case in CASES], action="append")
    parser.add_argument("--streams", type=lambda text: tuple(map(int, text.split(","))))
    parser.add_argument("--prompt", type=int, help="tokens of each prompt")
    parser.add_argument("--layers", default="99", help="layers on the GPU (99: all)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=7, help="no case begins later (7)")
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, with few tokens")
    parser.add_argument("--json", type=Path, help="write all rounds there")
    given = parser.parse_args()
    if given.rehearse:
        given.layers, given.rounds, given.minutes = "0", 1, math.inf
    return given


def shaped(case: OffloadCase, given: argparse.Namespace) -> OffloadCase:
    """The case as it is run: with the prompt that was asked for, or as small as a rehearsal's."""
    case = replace(case, prompt=given.prompt or case.prompt)
    if given.rehearse:
        return replace(case, prompt=max(1, case.prompt // SHORTER), tokens=REHEARSED_TOKENS)
    return case


def trace(model: Path, given: argparse.Namespace) -> None:
    """Print what of the worker's steps is Python's."""
    words = [sys.executable, "-m", "benchmarks.steps", "--model", str(model)]
    for streams in given.streams or CASES[0].streams:
        words += ["--streams", str(streams)]
    if given.rehearse:
        words += ["--rounds", "1", "--prompt", "6", "--tokens", "8"]
    subprocess.run([*words, "--worker", f"-ngl {given.layers} -t {given.threads}"], check=True)


def main() -> None:
    """Write the models, measure all cases, print."""
    given = arguments()
    if given.layers != "0" and not any(device.offloads for device in library.devices()):
        sys.exit("This build sees no GPU: make install BACKEND=cuda")
    results: list[OffloadResult] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        models: dict[str, Path] = {}
        for shape in given.shape or ("llama3-8b", "llama-1b"):
            model = write_model(Path(name) / f"{shape}.gguf", SHAPES[shape], "Q4_K_M")
            models[shape] = model
            say(began, f"{shape}: {model.stat().st_size / 1e9:.1f} GB; {WORKER}, {PEER}")
        cases = [case for case in CASES if case.name in (given.case or [case.name])]
        for case in cases:
            for shape, model in models.items():
                if time.monotonic() - began > 60 * given.minutes:
                    say(began, f"left out: {shape}, {case.name}")
                    continue
                say(began, f"{shape}, {case.name}")
                results += run_case(model, shape, shaped(case, given), given, Path(name))
                if given.json:
                    given.json.write_text(json.dumps(list(map(asdict, results)), indent=1))
                if case is cases[0]:
                    trace(model, given)
    say(began, "all is measured")


def say(began: float, text: str) -> None:
    """With the minutes and seconds since then."""
    minutes, seconds = divmod(int(time.monotonic() - began), 60)
    print(f"{minutes}:{seconds:02} {text}", flush=True)


if __name__ == "__main__":
    main()
