"""A worker that is watched from outside: its address, and what it holds."""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.processes import last_lines, started

_START_S = 120.0
_PATIENCE_S = 60.0


class HeldWorker:
    """host, port, pid: of a worker that is ready."""

    def __init__(self, host: str, port: int, pid: int) -> None:
        self.host, self.port, self.pid = host, port, pid

    def get(self, path: str) -> bytes:
        """The body of an answer, over a connection of its own."""
        with contextlib.closing(
            http.client.HTTPConnection(self.host, self.port, timeout=_PATIENCE_S)
        ) as connection:
            connection.request("GET", path)
            return connection.getresponse().read()

    def health(self) -> dict[str, Any]:
        """What GET /health says."""
        return json.loads(self.get("/health"))

    def metric(self, name: str) -> float:
        """The sum of a metric's samples whose line begins so."""
        lines = self.get("/metrics").decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def is_idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        health = self.health()
        return not health["slots_processing"] and not health["queue_depth"]

    def wait_until_idle(self) -> None:
        """Raises TimeoutError where something goes on for ever."""
        deadline = time.monotonic() + _PATIENCE_S
        while not self.is_idle():
            if time.monotonic() > deadline:
                raise TimeoutError("the worker does not come to rest")
            time.sleep(0.002)

    @property
    def num_files(self) -> int:
        """Descriptors that it has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    @property
    def anonymous(self) -> int:
        """Bytes of memory that no file stands behind."""
        text = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        return next(
            int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Anony")
        )

    @property
    def cpu_s(self) -> float:
        """CPU time of its threads so far."""
        files = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(file.read_text().split()[0]) for file in files) / 1e9


@contextlib.contextmanager
def watched(options: Sequence[str], *, max_files: int | None = None) -> Generator[HeldWorker]:
    """A worker that moves nothing by itself any more; it is gone afterwards.

    max_files: what `ulimit -n` allows it
    """
    command = [sys.executable, "-m", "worker", "serve", "--port", "0", "--log-format", "json"]
    command += options
    if max_files is not None:
        command = ["sh", "-c", f'ulimit -n {max_files} && exec "$@"', "sh", *command]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with started(command, log) as process:
            deadline = time.monotonic() + _START_S
            while '"event": "large pages"' not in (text := log.read_text()):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"The worker did not start:\n{last_lines(log)}")
                time.sleep(0.05)
            line = next(line for line in text.splitlines() if '"event": "listening"' in line)
            host, _, port = json.loads(line)["url"].removeprefix("http://").rpartition(":")
            yield HeldWorker(host, int(port), process.pid)
