"""What is between two decodes, and beside them: traced in a worker with clients, drawn.

    python -m benchmarks.steps --model FILE [--model FILE] [--top-k K] [--baseline CHECKOUT]
                               [--worker WORDS] [--svg OUT.svg]

Streams of server-sent events are read by a client on the same cores. `between` is the pause of the
compute threads from one decode to the next; `beside` is CPU time that the event loop's thread takes
while they compute. Tokens are the likeliest ones, or drawn from K.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.peers.processes import free_port, started, wait_until_settled
from benchmarks.steps.traced import PARTS
from worker.bench.measure.bare_loop import random_tokens
from worker.bench.measure.client import StreamedRequest

_HOST, _READY_S = "127.0.0.1", 600.0
_COLOURS = {
    "schedule": "#8250df", "fill": "#bf8700", "sample": "#1a7f37", "commit": "#0969da",
    "send": "#cf222e", "read": "#6e7781", "rest": "#d0d7de", "beside": "#f29e4c",
}  # fmt: skip
_BAR, _LEFT, _SCALE = 26, 230, 0.6


def main() -> None:
    """Trace each model with each number of streams; print a line each, then draw."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--model", type=Path, action="append", required=True)
    parser.add_argument("--streams", type=int, action="append")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--baseline", type=Path, help="another checkout, traced in turn with ours")
    parser.add_argument("--worker", default="", help="more words of the worker's command line")
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    bars: list[tuple[str, dict[str, float]]] = []
    for model in given.model:
        for streams in given.streams or (1, 8):
            for name, folder in (("before", given.baseline), ("now", Path.cwd())):
                if folder is not None:
                    label = f"{model.stem}, {streams} stream{'s' * (streams > 1)}, {name}"
                    bars.append((label, traced(model, streams, given, folder)))
                    print(_line(*bars[-1]), flush=True)
    if given.svg:
        given.svg.write_text(drawing(bars))


def traced(model: Path, streams: int, given: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Medians of one worker's plain steps of `streams` rows, or of the most rows that a step has
    there, in seconds; see `traced.Trace`."""
    port, slots = free_port(), max(8, streams)
    python = folder.resolve() / ".venv" / "bin" / "python"
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "trace.json"
        command = [
            *(str(python), str(Path(__file__).with_name("traced.py")), str(out)),
            *("serve", "--model", str(model.resolve()), "--host", _HOST, "--port", str(port)),
            *("-c", str(1024 * slots), "-np", str(slots)),
            *("-t", str(len(os.sched_getaffinity(0))), *shlex.split(given.worker)),
        ]
        log = Path(scratch) / "log"
        with started(command, log, folder=folder):
            _wait_until_ready(port)
            wait_until_settled(log)
            _ask(port, streams, given)
        found: dict[int, dict[str, float]] = {
            int(rows): medians for rows, medians in json.loads(out.read_text()).items()
        }
        if not found:
            sys.exit(f"No step of {streams} streams was plain: ask for more --tokens.")
        rows = streams if streams in found else max(found)
        return {**found[rows], "rows": rows}


def _ask(port: int, streams: int, given: argparse.Namespace) -> None:
    """Rounds of `streams` requests side by side, no two of which share a prompt."""

    fields = {"temperature": 0.8, "top_k": given.top_k} if given.top_k else None

    def one(number: int) -> None:
        prompt = random_tokens(number, given.prompt, 2000).tolist()
        answer = StreamedRequest(prompt, given.tokens, fields=fields).run(_HOST, port)
        if not answer.is_whole:
            sys.exit(f"The traced worker did not answer: {answer.error or 'too slow'}.")

    with ThreadPoolExecutor(streams) as pool:
        for first in range(0, given.rounds * streams, streams):
            list(pool.map(one, range(first, first + streams)))


def _wait_until_ready(port: int) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://{_HOST}:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    sys.exit("The traced worker did not get ready.")


def _line(label: str, found: dict[str, float]) -> str:
    whole = found["decode"] + found["pause"]
    parts = ", ".join(f"{name} {found[name] * 1e6:.0f}" for name in PARTS)
    return (
        f"{label}: decode {found['decode'] * 1e3:.2f} ms, between {found['pause'] * 1e6:.0f} µs "
        f"({found['pause'] / whole:.1%} of the step: {parts}; without CPU or lock "
        f"{found['waited'] * 1e6:.0f}), beside {found['loop'] * 1e6:.0f} µs, "
        f"{found['steps']:.0f} steps of {found['rows']:.0f} rows"
    )


def drawing(bars: list[tuple[str, dict[str, float]]]) -> str:
    """One SVG, a bar for each worker: µs between two decodes by part, and beside them."""
    widest = max(found["pause"] + found["loop"] for _, found in bars) * 1e6
    width, height = _LEFT + int(widest * _SCALE) + 130, 90 + len(bars) * (_BAR + 10)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        '<text x="12" y="24" font-size="16">Microseconds a step that are not llama_decode</text>',
    ]
    x = 12
    for name, colour in _COLOURS.items():
        parts.append(f'<rect x="{x}" y="38" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{x + 15}" y="48">{name}</text>')
        x += 26 + 8 * len(name)
    for row, (label, found) in enumerate(bars):
        parts += _bar(66 + row * (_BAR + 10), label, found)
    return "\n".join([*parts, "</svg>", ""])


def _bar(y: int, label: str, found: dict[str, Any]) -> list[str]:
    known = {name: found[name] for name in PARTS}
    known["rest"] = max(0.0, found["pause"] - sum(known.values()))
    known["beside"] = found["loop"]
    parts, x = [f'<text x="12" y="{y + 17}">{label}</text>'], float(_LEFT)
    for name, seconds in known.items():
        size = seconds * 1e6 * _SCALE
        colour = _COLOURS[name]
        parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="{size:.1f}" height="{_BAR}" fill="{colour}"/>'
        )
        x += size
    share = found["pause"] / (found["pause"] + found["decode"])
    parts.append(f'<text x="{x + 6:.0f}" y="{y + 17}">{share:.1%} of the step</text>')
    return parts


if __name__ == "__main__":
    main()
