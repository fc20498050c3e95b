"""`python -m tests.soak --minutes 120`: hours of clients, and what the worker holds after them."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
from pathlib import Path

from tests.soak.run import DISK_LIMIT, Soak, SoakPlan, run
from tests.soak.verdict import MB, judged


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--warm-up", type=float, metavar="MINUTES", help="a quarter of the run")
    parser.add_argument("--model", metavar="FILE")
    parser.add_argument("--rate", type=float, default=8.0)
    parser.add_argument("--every", type=float, default=15.0)
    parser.add_argument("--limit", type=float, default=1.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--samples", type=Path)
    asked = parser.parse_args()
    seed = secrets.randbelow(2**32) if asked.seed is None else asked.seed
    plan = SoakPlan(
        [sys.executable, "-P", "-m", "worker"],
        asked.model,
        asked.minutes,
        asked.rate,
        asked.every,
        seed,
    )
    warm_up = (asked.minutes / 4 if asked.warm_up is None else asked.warm_up) * 60

    def tell(soak: Soak) -> None:
        s = soak.samples[-1]
        print(
            f"{s.seconds:7.1f} s {s.clients:6} clients {s.anonymous / MB:7.2f} MB anon fds {s.descriptors} thr {s.threads} tmp {s.temp_files} live {s.live_cells} run {s.running} wait {s.waiting} req {s.requests} cache {s.cache_bytes / MB:.1f} disk {s.disk_bytes / MB:.1f} folder {s.folder_bytes / MB:.1f}/{s.folder_files} cpu {s.cpu_s:.1f} wrong {soak.wrong.total()}",
            flush=True,
        )

    out = asked.samples.open("w") if asked.samples else None
    soak = asyncio.run(run(plan, tell, out))
    verdict = judged(soak.samples, warm_up, asked.limit, DISK_LIMIT, soak.wrong)
    for k, v in soak.came.most_common():
        print(f"{v:7} {k}")
    print(soak.heartbeats)
    print(verdict)
    return {"sound": 0, "leak": 1, "short": 3}[verdict.outcome]


if __name__ == "__main__":
    sys.exit(main())
