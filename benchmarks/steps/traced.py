"""A worker that writes down where its steps' time goes: `python traced.py OUT.json serve ...`.

`python -m benchmarks.steps` starts it. It stands alone, so that it traces another checkout's worker
too. Only plain steps count, of one row or more for each stream and no prompt.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MAIN = threading.main_thread().ident or 0
# What the parts of the pause between two decodes are called, and what computes them.
PARTS = ("schedule", "fill", "sample", "commit", "send", "read")


class Trace:
    """Seconds of each plain step; the engine's thread writes.

    steps  rows of the step -> one dict a step: `decode`, the PARTS, `pause` (all between two
           decodes), `waited` (of the pause, without a CPU or Python's lock) and `loop` (CPU time
           of the event loop's thread since the step before)
    """

    def __init__(self) -> None:
        self.steps: dict[int, list[dict[str, float]]] = {}
        self._now: dict[str, float] = {}
        self._ended = self._ended_cpu = self._loop = 0.0
        self._decoded = 0.0
        self._rows = 0

    def part(self, owner: Any, method: str, name: str) -> None:
        """Count the seconds of `owner.method` as `name`, less those of parts inside it."""
        inner: Callable[..., Any] = getattr(owner, method)

        @functools.wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            before, started = sum(self._now.values()), time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                seconds = time.perf_counter() - started
                inside = sum(self._now.values()) - before
                self._now[name] = self._now.get(name, 0.0) + seconds - inside

        setattr(owner, method, timed)

    def computing(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """`Engine._compute`, whose plan says whether the step counts."""

        def compute(engine: Any, plan: Any) -> Any:
            self._rows = 0 if plan.prompt_rows else len(plan.runs)
            return inner(engine, plan)

        return compute

    def decoding(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """`LlamaBackend.decode`: here one step ends and the next begins."""

        def decode(backend: Any) -> Any:
            started, cpu = time.perf_counter(), time.thread_time()
            loop = time.clock_gettime(time.pthread_getcpuclockid(_MAIN))
            if self._rows and self._ended:
                pause = started - self._ended
                step = {name: self._now.get(name, 0.0) for name in PARTS}
                step |= {"decode": self._decoded, "pause": pause, "loop": loop - self._loop}
                step["waited"] = pause - (cpu - self._ended_cpu)
                self.steps.setdefault(self._rows, []).append(step)
            self._loop = loop
            started = time.perf_counter()
            result = inner(backend)
            self._ended, self._ended_cpu = time.perf_counter(), time.thread_time()
            self._decoded = self._ended - started
            self._now.clear()
            return result

        return decode

    def medians(self) -> dict[int, dict[str, float]]:
        """Rows -> the median of each part, and the number of steps."""
        return {
            rows: {
                **{name: statistics.median(step[name] for step in steps) for name in steps[0]},
                "mean_pause": statistics.mean(step["pause"] for step in steps),
                "mean_loop": statistics.mean(step["loop"] for step in steps),
                "steps": len(steps),
            }
            for rows, steps in self.steps.items()
        }


def main() -> None:
    """Serve, traced, until told to stop."""
    from worker.cli.main import main as worker
    from worker.engine.engine import Engine
    from worker.engine.scheduler import Scheduler
    from worker.engine.thread import EngineThread
    from worker.lifecycle.leave import leave
    from worker.llama.backend import LlamaBackend

    out, *words = sys.argv[1:]
    trace = Trace()
    trace.part(Scheduler, "schedule", "schedule")
    trace.part(Engine, "_fill", "fill")
    trace.part(LlamaBackend, "sample", "sample")
    trace.part(Engine, "_commit", "commit")
    trace.part(EngineThread, "_send", "send")
    trace.part(EngineThread, "_read_inbox", "read")
    Engine._compute = trace.computing(Engine._compute)  # pyright: ignore[reportPrivateUsage]
    LlamaBackend.decode = trace.decoding(LlamaBackend.decode)
    code = worker(words)
    Path(out).write_text(json.dumps(trace.medians()))
    leave(code)


if __name__ == "__main__":
    main()
