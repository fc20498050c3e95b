"""`python -m checks.soak --minutes 120`: hours of clients, and what the worker holds after them.

Exit code 0: sound; 1: a leak, or something went wrong; 3: too short to say.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from checks.soak.picture import drawing
from checks.soak.report import json_of, table_of, words_of
from checks.soak.run import DISK_LIMIT, Soak, SoakPlan, run, sentence
from checks.soak.verdict import judged

# After it all that has a limit is full, at 9 clients a second.
WARM_UP_MIN = 30.0
EXIT = {"sound": 0, "leak": 1, "short": 3}


def main() -> int:
    """Run, or read what was run, and tell."""
    asked = _parser().parse_args()
    if asked.read is not None:
        soak = Soak.read(asked.read)
    else:
        seed = secrets.randbelow(2**32) if asked.seed is None else asked.seed
        program = [sys.executable, "-P", "-m", "worker"]
        plan = SoakPlan(program, asked.model, asked.minutes, asked.rate, asked.every, seed)
        try:
            soak = _shown(plan, asked.samples)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
    warm_up = asked.warm_up * 60
    verdict = judged(soak.samples, warm_up, asked.limit, DISK_LIMIT, soak.wrong)
    if asked.svg is not None:
        title = f"{soak.plan.model or 'demo model'}, {soak.plan.rate:g} clients a second"
        asked.svg.write_text(drawing(title, soak.samples, warm_up, verdict))
    if asked.json:
        told = json_of(soak, verdict, warm_up, asked.limit)
        print(msgspec.json.encode(told).decode())  # without limits a slope's are null
    else:
        console = Console(highlight=False)
        console.print(table_of(soak, warm_up))
        for line in words_of(soak, verdict, warm_up, asked.limit):
            console.print(line, markup=False, soft_wrap=True)
    return EXIT[verdict.outcome]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m checks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--warm-up", type=float, default=WARM_UP_MIN, metavar="MINUTES",
                        help=f"in which memory may grow ({WARM_UP_MIN:g})")  # fmt: skip
    parser.add_argument("--limit", type=float, default=1.0, metavar="MB",
                        help="by which memory may grow in an hour (1)")  # fmt: skip
    parser.add_argument("--model", metavar="FILE", help="another than the embedded demo model")
    parser.add_argument("--rate", type=float, default=9.0, help="clients a second (9)")
    parser.add_argument("--every", type=float, default=15.0, metavar="SECONDS",
                        help="from one sample to the next (15)")  # fmt: skip
    parser.add_argument("--seed", type=int, help="of what clients do; else any")
    parser.add_argument("--samples", type=Path, metavar="FILE", help="a line of JSON for each")
    parser.add_argument("--read", type=Path, metavar="FILE",
                        help="tell about a run that wrote --samples")  # fmt: skip
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw it")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    return parser


def _shown(plan: SoakPlan, samples: Path | None) -> Soak:
    """Run it, with a bar on stderr where that is a terminal."""
    begun = time.monotonic()
    with ExitStack() as stack:
        out = stack.enter_context(samples.open("w")) if samples is not None else None
        bar = stack.enter_context(
            Progress(
                TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn(),
                console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
            )
        )  # fmt: skip
        task = bar.add_task("starting", total=plan.minutes * 60)

        def tell(soak: Soak) -> None:
            bar.update(task, description=sentence(soak), completed=time.monotonic() - begun)
            if out is not None:
                soak.write(out)

        return asyncio.run(run(plan, tell))


if __name__ == "__main__":
    sys.exit(main())
