"""The same over HTTP: answers that a schema holds beside free ones, in turns.

    python -m benchmarks.constraints.served MODEL... [--streams 1 8] [--tokens 64] [--rounds 5]
        [--threads 2] [--held calls|text]

For each model, number of streams and temperature: tokens a second of all streams together, by the
clock, and the process's CPU time for a token, medians; and the share that the schema leaves,
from pairs of requests that follow each other (`benchmarks.peers.quotients`). Who goes first changes
from round to round. 12 rounds leave a share open by 0.1, 200 by 0.01.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import statistics
import threading
import time
from typing import Any, NamedTuple

from benchmarks.connections.held import HeldWorker, watched
from benchmarks.constraints.__main__ import LONG
from benchmarks.peers.quotients import quotient

_TIMEOUT_S = 600.0
# Random weights: what such a model would say first the calls refuse nearly always, a text seldom.
_HELD: dict[str, Any] = {"calls": LONG, "text": {"type": "string", "minLength": 2000}}


class _Round(NamedTuple):
    speed: float
    cpu_s: float


def _ask(worker: HeldWorker, body: dict[str, Any]) -> int:
    with contextlib.closing(
        http.client.HTTPConnection(worker.host, worker.port, timeout=_TIMEOUT_S)
    ) as connection:
        connection.request("POST", "/v1/completions", json.dumps(body))
        answer = json.loads(connection.getresponse().read())
    return answer["usage"]["completion_tokens"]


def _round(worker: HeldWorker, body: dict[str, Any], streams: int) -> _Round:
    tokens: list[int] = []

    def run(seed: int) -> None:
        tokens.append(_ask(worker, {**body, "prompt": [seed + 5, seed + 6], "seed": seed}))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(streams)]
    cpu_s, begun = worker.cpu_s, time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun
    return _Round(sum(tokens) / seconds, (worker.cpu_s - cpu_s) / sum(tokens))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--held", choices=_HELD, default="calls")
    args = parser.parse_args()
    bodies: dict[str, dict[str, Any]] = {"free": {}, "held": {"json_schema": _HELD[args.held]}}
    for model in args.models:
        most = max(args.streams)
        options = ["--model", model, "-t", str(args.threads), "-np", str(most), "-c", "4096"]
        with watched(options) as worker:
            for streams in args.streams:
                for heat in (0.0, 1.0):
                    body = {"max_tokens": args.tokens, "ignore_eos": True, "temperature": heat}
                    found: dict[str, list[_Round]] = {name: [] for name in bodies}
                    for number in range(args.rounds + 1):
                        forms = list(bodies.items())
                        for name, form in forms[:: -1 if number % 2 else 1]:
                            each = _round(worker, {**body, **form}, streams)
                            if number:  # the first one compiles the schema
                                found[name].append(each)
                    free, held = found["free"], found["held"]
                    speeds = [[each.speed for each in rounds] for rounds in (free, held)]
                    costs = [[each.cpu_s * 1e3 for each in rounds] for rounds in (free, held)]
                    middles = [statistics.median(each) for each in (*speeds, *costs)]
                    print(
                        f"{model}: {streams} streams, temperature {heat:g}, {args.threads} "
                        f"threads, {args.rounds} rounds: {middles[0]:.1f} tok/s free, "
                        f"{middles[1]:.1f} held, {quotient(speeds[1], speeds[0])}; CPU a token "
                        f"{middles[2]:.2f} and {middles[3]:.2f} ms, {quotient(*costs)}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
