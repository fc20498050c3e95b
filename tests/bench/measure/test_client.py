"""The load client: what it counts, and how it is cut off."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import msgspec
import pytest

from tests.support.http import answering
from worker.bench.measure.client import StreamedAnswer, StreamedRequest, measure_requests
from worker.bench.sizes import EFFORTS
from worker.errors import BackendError

Reply = Callable[[BaseHTTPRequestHandler, dict[str, object]], None]
TEXT = b'data: {"choices":[{"text":"a","finish_reason":null}]}\n\n'
LAST = b'data: {"choices":[{"text":"","finish_reason":"length"}]}\n\n'
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,'
    b'"prompt_tokens_details":{"cached_tokens":3}}}\n\n'
)
DONE = b"data: [DONE]\n\n"


@contextmanager
def replying(reply: Reply) -> Generator[int]:
    """A server that answers every POST with `reply`; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            reply(self, msgspec.json.decode(body))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its name there)
            """Nothing."""

    with answering(Handler) as port:
        yield port


def sending(*events: bytes) -> Reply:
    """Status 200, and the events one by one."""

    def reply(handler: BaseHTTPRequestHandler, _: dict[str, object]) -> None:
        handler.send_response(200)
        handler.end_headers()
        for event in events:
            handler.wfile.write(event)

    return reply


def answered(*events: bytes) -> StreamedAnswer:
    """What the client makes of them; eight tokens were asked for."""
    with replying(sending(*events)) as port:
        return StreamedRequest("prompt", 8).run("127.0.0.1", port)


def test_usage_counts_before_events() -> None:
    """A token may bring no event: the server's own count is the answer's."""
    found = answered(TEXT, TEXT, LAST, USAGE, DONE)
    assert (found.tokens, len(found.times)) == (5, 3)
    assert (found.prompt_tokens, found.cached_tokens) == (7, 3)
    assert found.is_whole
    assert found.sent <= found.times[0] <= found.ended


def test_servers_without_usage_are_counted_too() -> None:
    """By llama-server's timings, by a finish for length, by events."""
    timings = b'data: {"choices":[],"timings":{"predicted_n":6}}\n\n'
    assert answered(TEXT, LAST, timings, DONE).tokens == 6
    assert answered(TEXT, LAST, DONE).tokens == 8
    assert answered(TEXT, TEXT, DONE).tokens == 2


def test_an_event_that_comes_in_pieces_is_one() -> None:
    """Reads end where they end."""
    found = answered(TEXT[:20], TEXT[20:] + USAGE[:30], USAGE[30:], DONE)
    assert (len(found.times), found.tokens) == (1, 5)


def test_a_failure_is_told() -> None:
    """Another status, an error among the events, a server that is not there."""

    def refuse(handler: BaseHTTPRequestHandler, _: dict[str, object]) -> None:
        handler.send_error(503, "busy")

    with replying(refuse) as port:
        refused = StreamedRequest("prompt", 8).run("127.0.0.1", port)
        with pytest.raises(BackendError, match="did not answer to the end: HTTP 503"):
            measure_requests("127.0.0.1", port, 100, EFFORTS["quick"][0], 1, 0)
    assert refused.error.startswith("HTTP 503")
    assert "broke" in answered(TEXT, b'data: {"error":{"message":"it broke"}}\n\n').error
    gone = StreamedRequest("prompt", 8).run("127.0.0.1", port)
    assert gone.error
    assert not gone.is_whole
    assert not refused.is_whole


def test_a_request_can_be_cut_off() -> None:
    """What has come until then is kept, and counted by its events."""
    request, cut = StreamedRequest("prompt", 8), threading.Event()

    def endless(handler: BaseHTTPRequestHandler, _: dict[str, object]) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(TEXT)
        request.stop()
        handler.wfile.write(TEXT)
        cut.wait(20)

    with replying(endless) as port:
        found = request.run("127.0.0.1", port)
        cut.set()
    assert 1 <= found.tokens <= 2
    assert not found.is_whole
    assert not found.error
    late = StreamedRequest("prompt", 8, limit_s=0).run("127.0.0.1", port)
    assert (late.tokens, late.is_whole, late.error) == (0, False, "")


def test_every_request_has_a_prompt_of_its_own() -> None:
    """As many rounds as asked for, one more that is not counted, and no prompt twice."""
    seen: list[object] = []

    def note(handler: BaseHTTPRequestHandler, body: dict[str, object]) -> None:
        seen.append(body["prompt"])
        sending(TEXT, TEXT, USAGE, DONE)(handler, body)

    sizes = EFFORTS["quick"][0]
    with replying(note) as port:
        found = measure_requests("127.0.0.1", port, 100, sizes, 3, 0)
    assert len(seen) == 3 * (sizes.requests + 1)
    assert len({str(prompt) for prompt in seen}) == len(seen)
    assert found.ttft is not None
    assert found.ttft.count == 3 * sizes.requests
    assert found.per_s.count == sizes.requests


def test_tokens_that_come_at_once_tell_no_speed_of_their_own() -> None:
    """Where all events come in one read the whole wait counts, not the nanoseconds between them."""
    at_once = StreamedAnswer(sent=0.0, ended=0.5, times=[0.4, 0.4, 0.4], tokens=10)
    assert at_once.decode_rate == 20
    apart = StreamedAnswer(sent=0.0, ended=0.5, times=[0.1, 0.2, 0.3], tokens=3)
    assert apart.decode_rate == pytest.approx(10)
