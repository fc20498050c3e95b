"""How long the worker takes from its spawn until it is ready, and with what.

    python -m benchmarks.startup --model FILE... [--llama-server BIN] [--beside FOLDER]
                                 [--rounds N] [--every SECONDS] [--after SECONDS] [--chat]
                                 [--svg benchmarks/startup.svg]

Each round starts each server in turn, the file in the page cache: 8,192 cells, 4 sequences. A
server is asked every 5 ms, or as `--every` says; what counts is the time from its spawn to the
first connection, to the first answer of /health, and to its first 200. Then, at once or `--after`
so many seconds, come ten streams, one after the other, each with a prompt that the server does not
know: six tokens, greedy, or `--chat`, by the API's defaults. What counts is the time to the first
token of three of them.
`--beside` names a folder with another version of the worker, to be started in turn too.
Prints medians, draws them, ends in one line of JSON.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.startup.picture import drawing

ROOT = Path(__file__).parent.parent.parent
_LIMIT_S = 120.0
_SHOWN = {"first": 0, "second": 1, "tenth": 9}
_TOKENS = 4


def main() -> None:
    """Start, ask, draw."""
    arguments = _arguments()
    peers: dict[str, tuple[list[str], Path]] = {}
    python = [sys.executable, "-m", "worker", "serve", "--log-format", "json"]
    peers["worker"] = (python, ROOT)
    if arguments.beside:
        peers["worker beside"] = (python, arguments.beside)
    if arguments.llama_server:
        peers["llama-server"] = ([str(arguments.llama_server)], ROOT)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for model in arguments.model:
        samples: dict[str, list[dict[str, Any]]] = {peer: [] for peer in peers}
        _read(model)
        for _ in range(arguments.rounds):
            for peer, (command, folder) in peers.items():
                samples[peer].append(start(command, folder, model, arguments))
        found[model.stem] = {peer: _medians(each) for peer, each in samples.items()}
        _print(model.stem, found[model.stem])
    if arguments.svg:
        arguments.svg.write_text(drawing(found))
    print(json.dumps(found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="From spawn to ready.")
    parser.add_argument("--model", type=Path, nargs="+", required=True)
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    # To answer takes time of a worker that imports: a longer step disturbs it less.
    parser.add_argument("--every", type=float, default=0.005)
    parser.add_argument("--after", type=float, default=0.0)
    parser.add_argument("--chat", action="store_true")
    parser.add_argument("--svg", type=Path)
    return parser.parse_args()


def _read(path: Path) -> None:
    """Bring the file into the page cache."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def start(
    command: list[str], folder: Path, model: Path, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Start one server, measure, and end it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["--model", str(model), "--port", str(port), "-c", "8192", "-np", "4"]
    with tempfile.TemporaryFile() as log:
        spawned = time.perf_counter()
        process = subprocess.Popen(
            [*command, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=log
        )
        try:
            point = _until_ready(port, spawned, process, arguments.every)
            point |= _memory(process.pid) | _cpu(process.pid)
            time.sleep(arguments.after)
            ask = _chat if arguments.chat else _completion
            waits = [_first_token(port, *ask(number)) for number in range(_SHOWN["tenth"] + 1)]
            point |= {f"{name}_request_ms": 1e3 * waits[at] for name, at in _SHOWN.items()}
        finally:
            process.terminate()
            process.wait(30)
        log.seek(0)
        return point | {"parts": _parts(log.read().decode(errors="replace"))}


def _until_ready(
    port: int, spawned: float, process: subprocess.Popen[bytes], every: float
) -> dict[str, float]:
    point: dict[str, float] = {}
    while time.perf_counter() - spawned < _LIMIT_S and process.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.connect()
            point.setdefault("bound_s", time.perf_counter() - spawned)
            connection.request("GET", "/health")
            status = connection.getresponse().status
            connection.close()
        except (OSError, http.client.HTTPException):
            time.sleep(every)
            continue
        point.setdefault("answered_s", time.perf_counter() - spawned)
        if status == http.client.OK:
            return point | {"ready_s": time.perf_counter() - spawned}
        time.sleep(every)
    raise RuntimeError("the server did not get ready")


def _completion(number: int) -> tuple[str, dict[str, Any]]:
    prompt = [100 + 7 * number, 200 + number, 300, 400, 500, 600]
    return "/v1/completions", {"prompt": prompt, "temperature": 0}


def _chat(number: int) -> tuple[str, dict[str, Any]]:
    content = f"{number} times upon a time there was a house of {number + 3} stones"
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": content}]}


def _first_token(port: int, path: str, asked: dict[str, Any]) -> float:
    """Seconds from the connection to the first event of a stream, which is read to its end."""
    body = json.dumps({**asked, "max_tokens": _TOKENS, "stream": True})
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    if answer.status != http.client.OK:
        raise RuntimeError(f"a request failed with {answer.status}: {answer.read()!r}")
    answer.readline()
    seconds = time.perf_counter() - begun
    answer.read()
    connection.close()
    return seconds


def _memory(pid: int) -> dict[str, float]:
    """MB of anonymous memory and of mapped files that are resident."""
    text = Path(f"/proc/{pid}/status").read_text()
    sizes = {name: int(size) for name, size in re.findall(r"(Rss\w+):\s+(\d+) kB", text)}
    return {"anonymous_mb": sizes["RssAnon"] / 1e3, "file_mb": sizes["RssFile"] / 1e3}


def _cpu(pid: int) -> dict[str, float]:
    """Seconds of CPU time that all threads took so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return {"cpu_s": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")}


def _parts(log: str) -> dict[str, float]:
    """What the worker says in its line `ready`; a llama-server has none."""
    for line in log.splitlines():
        if line.startswith("{") and (entry := json.loads(line))["event"] == "ready":
            return entry.get("parts", {})
    return {}


def _medians(points: list[dict[str, Any]]) -> dict[str, Any]:
    def middle(values: list[float]) -> float:
        return round(statistics.median(values), 3)

    parts = {name: middle([each["parts"][name] for each in points]) for name in points[0]["parts"]}
    figures = {
        name: middle([each[name] for each in points]) for name in points[0] if name != "parts"
    }
    return figures | {"parts": parts}


def _print(model: str, peers: dict[str, dict[str, Any]]) -> None:
    for peer, figures in peers.items():
        shown = ", ".join(f"{name} {value}" for name, value in figures.items() if name != "parts")
        print(f"{model} {peer}: {shown}", flush=True)
        if figures["parts"]:
            print("   ", ", ".join(f"{name} {value}" for name, value in figures["parts"].items()))


if __name__ == "__main__":
    main()
