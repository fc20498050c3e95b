"""The load client: streamed completions as a client sees them, each event with its moment.

It shares the machine with the server, so nothing is parsed while an answer is under way: each read
is kept with its time and looked at afterwards. It knows the events of the worker, of llama-server
and of llama-cpp-python's server.
"""

from __future__ import annotations

import http.client
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from worker.bench.measure.bare_loop import random_tokens, requests_of
from worker.bench.sections import Requests
from worker.bench.sizes import Sizes
from worker.errors import BackendError

_LIMIT_S = 600.0
_READ = 1 << 16
_LEAST_SPAN_S = 1e-3  # of what is measured: less is the clock's and the neighbours' doing


class _StreamEvent(msgspec.Struct):
    choices: list[dict[str, Any]] | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_StreamEvent)


class StreamedAnswer(msgspec.Struct):
    """One answer. Times are seconds of `time.monotonic`, which all processes of a machine share.

    times     arrival of each event that belongs to a token; a token may bring none of its own,
              because bytes of a character wait for each other
    tokens    as the server counts them; of an answer that was cut off, its events
    is_whole  False where it was cut off: by the time limit, or because the caller had seen enough
    """

    sent: float
    ended: float = 0.0
    times: list[float] = []
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    is_whole: bool = False
    error: str = ""

    @property
    def ttft(self) -> float:
        """Seconds to the first token; until the end, where none came."""
        return (self.times[0] if self.times else self.ended) - self.sent

    @property
    def decode_rate(self) -> float:
        """Tokens per second after the first one; of a whole answer in tokens, not in events.

        Where they did not come one after the other, or in less time than a clock and a read tell
        apart, they count over the whole wait: at least so fast.
        """
        span = self.times[-1] - self.times[0] if self.times else 0.0
        if self.tokens < 2 or span < _LEAST_SPAN_S:
            return self.tokens / max(self.ended - self.sent, _LEAST_SPAN_S)
        return (self.tokens - 1) / span


class StreamedRequest:
    """One completion of exactly `max_tokens` tokens, on a connection of its own.

    `num_reads` grows while it runs; `stop` cuts it off at its next read.
    """

    def __init__(
        self, prompt: str | Sequence[int], max_tokens: int, *, model: str | None = None,
        limit_s: float = _LIMIT_S, fields: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        """model: the name to ask for; limit_s: seconds from now until the answer is cut off;
        fields: more fields of the request's body, which is greedy where they say nothing else."""
        body: dict[str, object] = {"temperature": 0, **(fields or {})}
        if model is not None:
            body["model"] = model
        self._max_tokens = max_tokens
        self._body = msgspec.json.encode(
            body | {
                "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True,
                "stream": True, "stream_options": {"include_usage": True},
            }
        )  # fmt: skip
        self._deadline = time.monotonic() + limit_s
        self._reads: list[tuple[float, bytes]] = []
        self._is_stopped = False  # `stop` writes it, maybe from another thread

    @property
    def num_reads(self) -> int:
        """Reads so far: an event each, as long as tokens come one by one."""
        return len(self._reads)

    def stop(self) -> None:
        self._is_stopped = True

    def run(self, host: str, port: int) -> StreamedAnswer:
        """Send and read. What went wrong is the answer's `error`.

        A read that waits as long as was left of the limit cuts the answer off.
        """
        answer = StreamedAnswer(sent=time.monotonic())
        left = self._deadline - answer.sent
        if left <= 0:
            answer.ended = answer.sent
            return answer
        cut = False
        connection = http.client.HTTPConnection(host, port, timeout=left)
        try:
            headers = {"Content-Type": "application/json", "Connection": "close"}
            connection.request("POST", "/v1/completions", self._body, headers)
            response = connection.getresponse()
            if response.status != 200:
                answer.error = f"HTTP {response.status}: {response.read()[:200]!r}"
            while not cut and (data := response.read1(_READ)):
                now = time.monotonic()
                self._reads.append((now, data))
                cut = now > self._deadline or self._is_stopped
        except TimeoutError:
            cut = True
        except (OSError, http.client.HTTPException) as error:
            answer.error = f"{type(error).__name__}: {error}"
        finally:
            connection.close()
        answer.ended = time.monotonic()
        self._read_into(answer)
        answer.is_whole = not (cut or answer.error)
        return answer

    def _read_into(self, answer: StreamedAnswer) -> None:
        """Fill times and counts.

        Tokens are counted by usage, else by timings, else by a finish for length, else by events:
        random weights often write bytes that are no text yet, and such a token may bring no event.
        """
        counts: list[int] = []
        for moment, event in _events(self._reads):
            if event.error:
                answer.error = str(event.error)[:200]
            if event.choices:
                answer.times.append(moment)
                if event.choices[0].get("finish_reason") == "length":
                    counts.append(self._max_tokens)
            if event.timings and (count := event.timings.get("predicted_n")):
                counts.append(count)
            if usage := event.usage:
                counts.append(usage["completion_tokens"])
                answer.prompt_tokens = usage["prompt_tokens"]
                details: dict[str, Any] | None = usage.get("prompt_tokens_details")
                answer.cached_tokens = details.get("cached_tokens") or 0 if details else 0
        answer.tokens = counts[-1] if counts else len(answer.times)


def _events(reads: Sequence[tuple[float, bytes]]) -> Iterator[tuple[float, _StreamEvent]]:
    """Events with the time of the read that completed them."""
    rest = b""
    for moment, data in reads:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            body = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and body != b"[DONE]":
                yield moment, _decoder.decode(body)


def measure_requests(
    host: str, port: int, vocab_size: int, sizes: Sizes, streams: int, seed: int
) -> Requests:
    """Rounds of `streams` requests side by side; the first round is not counted.

    Prompts are random tokens that no other seed has, so no prefix is shared.
    Raises BackendError where a request fails.
    """

    def ask(number: int) -> StreamedAnswer:
        prompt = random_tokens(seed + number, sizes.prompt, vocab_size).tolist()
        answer = StreamedRequest(prompt, sizes.decode).run(host, port)
        if not answer.is_whole:
            raise BackendError(
                f"The server did not answer to the end: {answer.error or 'too slow'}."
            )
        return answer

    with ThreadPoolExecutor(streams) as pool:
        rounds = [
            list(pool.map(ask, range(first, first + streams)))
            for first in range(0, (sizes.requests + 1) * streams, streams)
        ][1:]
    answers = list(itertools.chain.from_iterable(rounds))
    gaps = [b - a for answer in answers for a, b in itertools.pairwise(answer.times)]
    first = [answer.ttft for answer in answers if answer.times]
    speeds = [sum(a.decode_rate for a in round_ if len(a.times) > 1) for round_ in rounds]
    speeds = [speed for speed in speeds if speed]
    return requests_of(streams, sizes, first, gaps, speeds)
