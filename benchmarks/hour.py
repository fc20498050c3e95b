"""Whether memory stays where it was planned, over an hour of turns.

    python -m benchmarks.hour [--model FILE] [--minutes 60] [--ctx-size 4096] [--parallel 4]
                              [--cache-ram MIB] [--cache-disk MIB] [--talkers 6]

Starts `worker serve` with a small cache in memory and on disk, and lets people talk to it (see
`talkers.py`): conversations that come back, common system prompts, prompts that are asked once,
prompts that need the unified layout, answers that nobody waits for. Each second it samples the
process's memory and the worker's metrics.

Prints a line each minute and a report, ends in one line of JSON. The exit code is 1 where memory
passed the plan with the cache's budget, a cache passed its limit, or a request failed.
Linux only: memory is read from /proc.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from benchmarks.peers.processes import last_lines, started
from benchmarks.talkers import Talkers, scrape
from worker.demo import MODEL_PATH

START_TIMEOUT_S = 300.0
MB = 1_000_000


@dataclass
class MemorySample:
    """One second; bytes.

    resident, anonymous  memory of the process; anonymous is what no file stands behind
    """

    seconds: float
    resident: int
    anonymous: int
    metrics: dict[str, float]


@dataclass
class ReadyWorker:
    """What a worker's log says when it is ready; bytes."""

    url: str
    planned: int
    kept: int


def memory_of(pid: int) -> tuple[int, int]:
    """(resident, anonymous) bytes of a process."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    resident, anonymous = (int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon"))
    return resident, anonymous


def wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> ReadyWorker:
    """Read the log until it says where the worker listens and what it planned."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
        events = {entry.get("event"): entry for entry in map(json.loads, lines)}
        if "ready" in events and "listening" in events:
            ready = events["ready"]
            url = events["listening"]["url"]
            return ReadyWorker(url, ready["planned_mb"] * MB, ready["kept_mb"] * MB)
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit(f"The worker did not start:\n{last_lines(log)}")


def watch(pid: int, ready: ReadyWorker, talkers: Talkers, seconds: float) -> list[MemorySample]:
    """Sample each second, and tell each minute."""
    samples: list[MemorySample] = []
    begun = time.monotonic()
    while (now := time.monotonic() - begun) < seconds:
        samples.append(MemorySample(now, *memory_of(pid), scrape(ready.url)))
        if len(samples) > 1 and now // 60 > samples[-2].seconds // 60:
            tell(samples[-1], talkers)
        time.sleep(max(0.0, begun + now + 1 - time.monotonic()))
    return samples


def tell(sample: MemorySample, talkers: Talkers) -> None:
    """A line about now."""
    totals, metrics = talkers.totals, sample.metrics
    print(
        f"{sample.seconds / 60:4.0f} min: {sample.resident / MB:6.0f} MB resident, "
        f"{sample.anonymous / MB:6.0f} anonymous, "
        f"kept {metrics.get('worker_cache_bytes', 0) / MB:6.1f}, "
        f"disk {metrics.get('worker_cache_disk_bytes', 0) / MB:7.1f}; "
        f"{totals.answers.total():6} answers, {totals.hit_rate:4.0%} of prompt tokens cached, "
        f"{totals.errors.total()} errors",
        flush=True,
    )


def growth(samples: list[MemorySample]) -> float:
    """Bytes per minute by which anonymous memory grows, fitted over the second half."""
    half = samples[len(samples) // 2 :]
    if len(half) < 2:
        return 0.0
    slope = np.polyfit([s.seconds / 60 for s in half], [s.anonymous for s in half], 1)[0]
    return float(slope)


def report(samples: list[MemorySample], ready: ReadyWorker, talkers: Talkers) -> dict[str, object]:
    """The figures, and in "broken" what must not be."""
    totals = talkers.totals
    seen = [sample.metrics for sample in samples if sample.metrics]

    def most(name: str) -> float:
        return max((metrics.get(name, 0.0) for metrics in seen), default=0.0)

    limit = ready.planned + ready.kept
    peak = max(sample.resident for sample in samples)
    broken: list[str] = []
    if peak > limit:
        broken.append(
            f"resident memory passed the plan and the budget by {(peak - limit) / MB:.1f} MB"
        )
    for name in ("worker_cache", "worker_cache_disk"):
        over = most(f"{name}_bytes") - most(f"{name}_limit_bytes")
        if over > 0:
            broken.append(f"{name}_bytes passed its limit by {over / MB:.1f} MB")
    broken += [f"{count} x {reason}" for reason, count in totals.errors.items()]
    return {
        "seconds": round(samples[-1].seconds),
        "planned_mb": ready.planned / MB,
        "budget_mb": ready.kept / MB,
        "peak_resident_mb": peak / MB,
        "peak_anonymous_mb": max(sample.anonymous for sample in samples) / MB,
        "growth_mb_per_minute": growth(samples) / MB,
        "answers": dict(totals.answers),
        "hit_rate": totals.hit_rate,
        "hit_rates": {
            kind: totals.cached_tokens[kind] / count
            for kind, count in sorted(totals.prompt_tokens.items())
        },
        "prompt_tokens": totals.prompt_tokens.total(),
        "most_kept_mb": most("worker_cache_bytes") / MB,
        "most_on_disk_mb": most("worker_cache_disk_bytes") / MB,
        "last": {
            name: seen[-1].get(f"worker_{name}", 0.0)
            for name in (
                "cache_restored_tokens_total", "cache_evicted_tokens_total",
                "cache_disk_written_bytes_total", "cache_disk_read_bytes_total",
                "cache_disk_errors_total", "preemptions_total",
            )
        } if seen else {},
        "broken": broken,
    }  # fmt: skip


def main() -> None:
    """Start, talk, watch, tell."""
    parser = argparse.ArgumentParser(description="Memory over an hour of turns.")
    parser.add_argument("--model", type=Path, default=MODEL_PATH)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--ctx-size", type=int, default=4096)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--cache-ram", type=int, default=32, help="MiB; 0: none")
    parser.add_argument("--cache-disk", type=int, default=128, help="MiB; 0: none")
    parser.add_argument("--talkers", type=int, default=6)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [
            sys.executable, "-P", "-m", "worker", "serve", "--model", str(given.model),
            "--host", "127.0.0.1", "--port", "0", "--log-format", "json",
            "--die-with-parent", "stdin", "--ctx-size", str(given.ctx_size),
            "--parallel", str(given.parallel), "--cache-ram", str(given.cache_ram),
        ]  # fmt: skip
        if given.cache_disk:
            command += ["--cache-dir", str(Path(folder) / "cache")]
            command += ["--cache-disk", str(given.cache_disk)]
        with started(command, log) as process:
            ready = wait_until_ready(process, log)
            context = httpx.get(ready.url + "/health").json()["context_length"]
            stream = given.ctx_size // given.parallel // 256 * 256 or given.ctx_size
            talkers = Talkers(ready.url, given.talkers, context, min(stream, context))
            try:
                samples = watch(process.pid, ready, talkers, given.minutes * 60)
            finally:
                talkers.stop()
            figures = report(samples, ready, talkers)
    for name, value in figures.items():
        print(f"{name:22} {value}")
    print(json.dumps({"model": given.model.name, **figures}))
    if figures["broken"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
