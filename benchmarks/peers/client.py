"""The load generator: OpenAI completions over SSE, read with as little work as possible.

It shares the machine with the peer, so nothing is parsed while an answer is under way: each read
is kept with its time, and looked at afterwards.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from benchmarks.peers.answers import Answer, Job, Work
from benchmarks.peers.events import read_into


class Stream:
    """One request under way. `num_reads` grows while it runs; `stop` cuts it at its next read."""

    def __init__(self, job: Job, limit_s: float) -> None:
        self.job = job
        self.deadline = time.monotonic() + limit_s
        self._reads: list[tuple[float, bytes]] = []
        self._stopped = threading.Event()

    @property
    def num_reads(self) -> int:
        """Reads so far, an event each as long as tokens come one by one."""
        return len(self._reads)

    def stop(self) -> None:
        """We have seen enough."""
        self._stopped.set()

    def run(self, client: httpx.Client, body: dict[str, Any]) -> Answer:
        """Send and read; a peer that sends nothing is given up after the limit, counted anew."""
        answer = Answer(sent=time.monotonic())
        left = self.deadline - answer.sent
        if left <= 0:
            answer.ended = answer.sent
            return answer
        cut = False
        try:
            with client.stream("POST", "/v1/completions", json=body, timeout=left) as response:
                if response.status_code != 200:
                    answer.error = f"HTTP {response.status_code}: {response.read()[:200]!r}"
                for data in response.iter_raw():
                    now = time.monotonic()
                    self._reads.append((now, data))
                    if now > self.deadline or self._stopped.is_set():
                        cut = True
                        break
        except httpx.ReadTimeout:
            cut = True
        except httpx.HTTPError as error:
            answer.error = f"{type(error).__name__}: {error}"
        answer.ended = time.monotonic()
        read_into(answer, self._reads, self.job.max_tokens)
        answer.is_whole = not (cut or answer.error)
        return answer


class Client:
    """A connection for each request: peers close kept ones each by its own rule."""

    def __init__(self, url: str, model: str) -> None:
        self._model = model
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.Client(base_url=url, limits=limits, trust_env=False, verify=False)

    def get(self, path: str) -> int:
        """The status of a GET; 0 where nothing answers."""
        try:
            return self._http.get(path, timeout=1).status_code
        except httpx.HTTPError:
            return 0

    def run(self, stream: Stream) -> Answer:
        """Send one request and read its answer to the end."""
        body = {
            "model": self._model,
            "prompt": stream.job.prompt,
            "max_tokens": stream.job.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return stream.run(self._http, body)

    def answer_all(self, work: Work) -> list[Answer]:
        """Closed loop: each client sends its next request when the one before has ended."""
        streams = [Stream(job, work.limit_s) for job in work.jobs]
        with ThreadPoolExecutor(work.clients) as pool:
            return list(pool.map(self.run, streams))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()
