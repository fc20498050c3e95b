"""On a GPU beside llama-server: `python -m benchmarks.offload LLAMA_SERVER [--json FILE]`.

Streams write 200 tokens behind prompts that are drawn anew each time, from models of random weights
in Q4_K_M: of 8B, and of 1B. Both peers get the same options and the same requests to /completion,
and take turns. The first round is not told. Draft tokens are as by default. A row has the tokens a
second of all streams, the time to the first token, and the quotient of each round beside its goal.
Behind the first case traced workers tell what of their steps is Python's.

What matters most comes first, and each row is printed and kept as it comes. After --minutes nothing
begins, and the end names what was left out. What fails is named too, and loses nothing behind it.

`--rehearse` runs all of it on a CPU, with a few tokens and prompts as long as that allows; its
figures mean nothing. Exit code 1: something failed, or this build sees no GPU.
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
from typing import NamedTuple

import httpx

from benchmarks.adapters import beside
from benchmarks.models import write_model
from benchmarks.peers.processes import PeerError, last_lines
from benchmarks.shapes import SHAPES
from worker.llama import library

SPARE = 64
WORKER, PEER = "worker", "llama-server"
DEFAULT_SHAPES = ("llama3-8b", "llama-1b")
MINUTES = 6.0
ANSWERS_S = 600.0
FAILURES = (
    PeerError, httpx.HTTPError, OSError, LookupError, ValueError, subprocess.SubprocessError,
)  # fmt: skip


class Rehearsal(NamedTuple):
    """As much as two cores compute in minutes.

    prompt  the most tokens of a prompt that comes alone; those of n streams have n² times less
    tokens  that each stream writes
    """

    prompt: int
    tokens: int

    def prompt_of(self, streams: int) -> int:
        return max(1, self.prompt // streams**2)


REHEARSALS = {"llama3-8b": Rehearsal(16, 2), "llama-1b": Rehearsal(2000, 8)}


@dataclass(frozen=True)
class OffloadCase:
    """What both peers are started with, and what they are asked.

    prompt  tokens of each stream's prompt; fewer in a rehearsal
    """

    name: str
    prompt: int = 600
    tokens: int = 200
    streams: tuple[int, ...] = (1, 8)
    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    rehearsal: Rehearsal | None = None

    def prompt_of(self, streams: int) -> int:
        """Tokens of one prompt where so many streams have one."""
        short = self.rehearsal.prompt_of(streams) if self.rehearsal else self.prompt
        return min(self.prompt, short)

    @property
    def cells(self) -> int:
        """Enough for the most streams, each with the longest prompt."""
        longest = max(map(self.prompt_of, self.streams))
        return max(self.streams) * (longest + self.tokens + SPARE)


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
    prompt: int
    tokens: int
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
        speeds = (f"{statistics.median(self.per_s[peer]):8.1f}" for peer in (WORKER, PEER))
        firsts = (f"{statistics.median(self.first_s[peer]):7.3f}" for peer in (WORKER, PEER))
        verdict = "met" if middle >= self.goal else "missed"
        return (
            f"{self.shape:10} {self.case:20} {self.streams:3} streams of {self.prompt:4} + "
            f"{self.tokens:3}: tok/s {' '.join(speeds)}, first token s {' '.join(firsts)}, "
            f"quotient {middle:.2f} ({found[0]:.2f} to {found[-1]:.2f}), goal {self.goal} {verdict}"
        )


class OffloadRun:
    """The rows, which are printed and kept as they come, what failed, and what was left out.

    folder: of the peers' logs, whose ends a failure shows
    """

    def __init__(self, folder: Path, minutes: float, json_file: Path | None) -> None:
        self.folder = folder
        self.rows: list[OffloadResult] = []
        self.failed: list[str] = []
        self.left_out: list[str] = []
        self._json_file = json_file
        self._began = time.monotonic()
        self._ends = self._began + 60 * minutes
        self._keep()

    @property
    def left_s(self) -> float:
        """Seconds until nothing begins any more."""
        return self._ends - time.monotonic()

    @property
    def patience_s(self) -> float:
        """How long what has begun may be silent."""
        return max(60.0, min(ANSWERS_S, self.left_s))

    def say(self, text: str) -> None:
        """With the minutes and seconds since it began."""
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        print(f"{minutes}:{seconds:02} {text}", flush=True)

    def add(self, row: OffloadResult) -> None:
        self.rows.append(row)
        self.say(str(row))
        self._keep()

    def has_time(self, for_what: str) -> bool:
        if self.left_s > 0:
            return True
        self.left_out.append(for_what)
        return False

    @contextmanager
    def attempt(self, what: str) -> Generator[None]:
        """Inside, a failure is told, and what stands behind goes on."""
        try:
            yield
        except FAILURES as error:
            self.failed.append(what)
            self.say(f"failed: {what}: {type(error).__name__}: {error}")
            for log in sorted(self.folder.glob("*.log")):
                print(f"{log.name}:\n{last_lines(log)}", flush=True)

    def end(self) -> int:
        """Tell how it ended; the exit code."""
        self.say(f"{len(self.rows)} rows")
        for name, which in (("left out", self.left_out), ("failed", self.failed)):
            if which:
                self.say(f"{name}: {'; '.join(which)}")
        return int(bool(self.failed))

    def _keep(self) -> None:
        if self._json_file:
            self._json_file.write_text(json.dumps(list(map(asdict, self.rows)), indent=1))


def ask(
    url: str, number: int, round_: int, prompt: int, tokens: int, patience_s: float
) -> float:  # fmt: skip
    """Write one text; seconds until its first token came. Raises PeerError where it is short."""
    body = {
        "prompt": random.Random(f"{round_} {number}").choices(range(300, 2_000), k=prompt),
        "n_predict": tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": False,
        "stream": True,
    }  # fmt: skip
    began, first, last = time.monotonic(), 0.0, {}
    with httpx.stream("POST", f"{url}/completion", json=body, timeout=patience_s) as answer:
        for line in answer.raise_for_status().iter_lines():
            if line.startswith("data: "):
                first = first or time.monotonic() - began
                last = json.loads(line[6:])
    if last["timings"]["predicted_n"] != tokens:
        raise PeerError(f"{url} wrote {last['timings']['predicted_n']} tokens")
    return first


def measure(
    run: OffloadRun,
    urls: Mapping[str, str],
    shape: str,
    case: OffloadCase,
    streams: int,
    rounds: int,
) -> OffloadResult:
    """All rounds that there is time for, at least one, the peers in turn; one round alone is told
    though nothing is warm."""
    prompt = case.prompt_of(streams)
    result = OffloadResult(shape, case.name, streams, prompt, case.tokens, {}, {})
    for round_ in range(rounds + (rounds > 1)):
        if round_ > 1 and run.left_s < 0:
            break
        for peer, url in urls.items():
            one = partial(
                ask, url, round_=round_, prompt=prompt, tokens=case.tokens,
                patience_s=run.patience_s,
            )  # fmt: skip
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


def run_case(run: OffloadRun, model: Path, case: OffloadCase, given: argparse.Namespace) -> None:
    """Start both with room for the most streams, and measure with each number of them."""
    words = ["--model", str(model), "-c", str(case.cells), "-np", str(max(case.streams)),
             "-ngl", given.layers, "-t", str(given.threads), *case.words]  # fmt: skip
    with (
        variables(case.variables),
        beside(given.llama_server, words, run.folder) as urls,
    ):
        for streams in case.streams:
            what = f"{model.stem}, {case.name}, {streams} streams"
            if run.has_time(what):
                with run.attempt(what):
                    row = measure(run, urls, model.stem, case, streams, given.rounds)
                    run.add(row)


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
    parser.add_argument("--minutes", type=float, help="nothing begins later (6; rehearsed: never)")
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, with few tokens")
    parser.add_argument("--json", type=Path, help="write all rounds there")
    given = parser.parse_args()
    if given.rehearse:
        given.layers, given.rounds = "0", 1
    if given.minutes is None:
        given.minutes = math.inf if given.rehearse else MINUTES
    return given


def shaped(case: OffloadCase, shape: str, given: argparse.Namespace) -> OffloadCase:
    """The case as it is run: with what was asked for, or as small as a rehearsal's."""
    case = replace(case, prompt=given.prompt or case.prompt, streams=given.streams or case.streams)
    if given.rehearse:
        short = REHEARSALS.get(shape, REHEARSALS["llama-1b"])
        return replace(case, rehearsal=short, tokens=short.tokens)
    return case


def trace(run: OffloadRun, model: Path, case: OffloadCase, given: argparse.Namespace) -> None:
    """Print what of the worker's steps is Python's, with each number of streams."""
    for streams in case.streams:
        what = f"{model.stem}, trace of {streams} streams"
        if not run.has_time(what):
            continue
        words = [sys.executable, "-m", "benchmarks.steps", "--model", str(model)]
        words += ["--streams", str(streams)]
        options = f"-ngl {given.layers} -t {given.threads}"
        if given.rehearse:
            words += ["--rounds", "1", "--prompt", "1", "--tokens", "4"]
            options += f" -c {max(8, streams) * SPARE}"
        with run.attempt(what):
            command = [*words, "--worker", options]
            subprocess.run(command, check=True, timeout=run.patience_s)


def main() -> int:
    """Write the models, measure all cases, print; the exit code."""
    given = arguments()
    if given.layers != "0" and not any(device.offloads for device in library.devices()):
        sys.exit("This build sees no GPU: make install BACKEND=cuda")
    with tempfile.TemporaryDirectory() as name:
        run = OffloadRun(Path(name), given.minutes, given.json)
        models: list[Path] = []
        for shape in given.shape or DEFAULT_SHAPES:
            with run.attempt(f"{shape}: writing the model"):
                path = run.folder / f"{shape}.gguf"
                models.append(write_model(path, SHAPES[shape], "Q4_K_M"))
                run.say(f"{shape}: {path.stat().st_size / 1e9:.1f} GB; {WORKER}, {PEER}")
        cases = [case for case in CASES if case.name in (given.case or [case.name])]
        for case in cases:
            for model in models:
                what = f"{model.stem}, {case.name}"
                if run.has_time(what):
                    with run.attempt(what):
                        run_case(run, model, shaped(case, model.stem, given), given)
            for model in models if case is cases[0] else ():
                trace(run, model, shaped(case, model.stem, given), given)
        return run.end()


if __name__ == "__main__":
    sys.exit(main())
