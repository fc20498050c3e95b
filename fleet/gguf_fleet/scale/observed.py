"""What a replica tells Ray of its worker's load: the worker's own metrics, a few of them."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from typing import Any

import msgspec

from gguf_fleet.front.upstream import LostError, Upstream
from gguf_fleet.routing import Member
from gguf_fleet.scale.count import ReplicaFigures

# Those whose only label is the model's name.
_SAMPLE = re.compile(r'^(worker_[a-z_]+)\{model_name="(?:[^"\\]|\\.)*"\} (\S+)$', re.MULTILINE)
_FIRST = "worker_first_token_seconds"
# Texts, one a second, over which first tokens are counted.
_WINDOW = 10
_PATIENCE_S = 2.0


class MetricsReader:
    """Makes figures of one worker's texts of /metrics, one after the other."""

    def __init__(self) -> None:
        # (sum of seconds, number) of all first tokens until then.
        self._firsts: deque[tuple[float, float]] = deque([(0.0, 0.0)], _WINDOW)

    def figures(self, text: str) -> ReplicaFigures:
        """Of a text that is newer than the last one; what it does not say is 0.

        The time to the first token is the mean of those who got theirs in the last texts.
        """
        said = {name: float(value) for name, value in _SAMPLE.findall(text)}
        total, count = said.get(f"{_FIRST}_sum", 0.0), said.get(f"{_FIRST}_count", 0.0)
        if count < self._firsts[-1][1]:  # another worker, after the first one died
            self._firsts = deque([(0.0, 0.0)], _WINDOW)
        before, known = self._firsts[0]
        self._firsts.append((total, count))
        return ReplicaFigures(
            running=said.get("worker_requests_running", 0.0),
            waiting=said.get("worker_requests_waiting", 0.0),
            cells=said.get("worker_kv_cells_live_ratio", 0.0),
            first_token=(total - before) / (count - known) if count > known else 0.0,
        )


class WorkerLoad:
    """Asks a worker for its metrics."""

    def __init__(self) -> None:
        self._reader = MetricsReader()

    async def figures(self, worker: dict[str, Any]) -> dict[str, float]:
        """The fields of `ReplicaFigures`; none of a worker that does not answer.

        worker: the fields of `Member`, but for the id
        """
        member, upstream = Member(id="", **worker), Upstream()
        try:
            async with (
                asyncio.timeout(_PATIENCE_S),
                upstream.ask(member, "GET", "/metrics") as reply,
            ):
                if reply.status != 200:
                    return {}
                text = (await reply.whole()).decode()
        except (LostError, TimeoutError):
            return {}
        finally:
            await upstream.close()
        return msgspec.structs.asdict(self._reader.figures(text))
