"""--otel: a span for each request, in a real collector; and what happens without one."""

from __future__ import annotations

import http.server
import importlib.util
import signal
import socket
import threading
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support import http as client
from tests.support.programs.processes import Server, serving, starting, until

if importlib.util.find_spec("opentelemetry.exporter") is None:
    pytest.skip("the extra otel is not installed", allow_module_level=True)

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
BODY = {"prompt": [1, *range(5, 45)], "max_tokens": 6, "ignore_eos": True}


class Collector:
    """Takes spans over HTTP and keeps them. spans: by the route that names them"""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.service: dict[str, str] = {}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                sent = ExportTraceServiceRequest.FromString(
                    self.rfile.read(int(self.headers["content-length"]))
                )
                for resource in sent.resource_spans:
                    outer.service = attributes_of(resource.resource)
                    for scope in resource.scope_spans:
                        outer.spans += scope.spans
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def named(self, name: str) -> list[Any]:
        """Spans of this name."""
        return [span for span in self.spans if span.name == name]


def attributes_of(thing: Any) -> dict[str, Any]:
    """Of a span, an event or a resource."""
    found: dict[str, Any] = {}
    for pair in thing.attributes:
        value = getattr(pair.value, pair.value.WhichOneof("value"))
        found[pair.key] = (
            [v.string_value for v in value.values] if hasattr(value, "values") else value
        )
    return found


@pytest.fixture(scope="module")
def collector() -> Generator[Collector]:
    """One that listens."""
    found = Collector()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture(scope="module")
def traced(tiny: Path, collector: Collector) -> Generator[Server]:
    """A worker that sends spans there, and soon."""
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
    }
    with serving("--model", tiny, "--otel", "-a", "m", "-c", "1024", "-t", "1", env=env) as server:
        yield server


def test_a_request_is_a_span(traced: Server, collector: Collector) -> None:
    """It goes on from the client's span, and says what was computed and when."""
    name = "POST /v1/completions"
    before, began = len(collector.named(name)), time.time_ns()
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
    answer = client.post(traced.url + "/v1/completions", json=BODY, headers=headers)
    assert answer.status_code == 200
    until(lambda: len(collector.named(name)) > before)
    span = collector.named(name)[-1]
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert span.kind == span.SPAN_KIND_SERVER
    found = attributes_of(span)
    expected = {
        "http.request.method": "POST",
        "http.route": "/v1/completions",
        "http.response.status_code": 200,
        "gen_ai.operation.name": "text_completion",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 41,
        "gen_ai.usage.output_tokens": 6,
        "gen_ai.response.finish_reasons": ["length"],
        "worker.request_id": "mine",
    }
    assert {key: found.get(key) for key in expected} == expected
    assert "error.type" not in found
    assert [event.name for event in span.events] == ["queued", "admitted", "first token"]
    times = [span.start_time_unix_nano, *(event.time_unix_nano for event in span.events)]
    times.append(span.end_time_unix_nano)
    assert times == sorted(times)
    slack = 10_000_000  # the record's times are rounded
    assert began - slack <= times[0] <= times[-1] <= time.time_ns() + slack
    assert collector.service["service.name"] == "gguf-worker"
    assert collector.service["deployment.environment.name"] == "test"


def test_a_refused_request_is_one_too(traced: Server, collector: Collector) -> None:
    """It has the error's code; reads and paths that are not there are no spans."""
    client.get(traced.url + "/v1/models")
    client.post(traced.url + "/not/there", json={})
    before = len(collector.named("POST /v1/chat/completions"))
    body: dict[str, Any] = {"messages": []}
    assert client.post(traced.url + "/v1/chat/completions", json=body).status_code == 400
    until(lambda: len(collector.named("POST /v1/chat/completions")) > before)
    span = collector.named("POST /v1/chat/completions")[-1]
    found = attributes_of(span)
    assert found["http.response.status_code"] == 400
    assert found["error.type"]
    assert "gen_ai.usage.input_tokens" not in found
    assert span.status.code == span.status.STATUS_CODE_UNSET  # the client's fault
    assert {span.name.partition(" ")[0] for span in collector.spans} == {"POST"}
    assert not collector.named("POST /not/there")


def test_what_is_left_is_sent_at_the_end(tiny: Path, collector: Collector) -> None:
    """The last spans are not lost when the worker leaves."""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "600000"}
    before = len(collector.named("POST /v1/completions"))
    with starting("--model", tiny, "--otel", "-c", "512", "-t", "1", env=env) as server:
        server.wait_until_ready()
        assert server.post(BODY).status_code == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    assert len(collector.named("POST /v1/completions")) == before + 1


def test_a_dead_collector_does_no_harm(tiny: Path) -> None:
    """One that takes connections and never answers: requests are answered, the worker leaves."""
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_BSP_SCHEDULE_DELAY": "10",
            "OTEL_BSP_MAX_QUEUE_SIZE": "4",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "2",
        }
        with starting("--model", tiny, "--otel", "-c", "512", "-t", "1", env=env) as server:
            server.wait_until_ready()
            for _ in range(12):  # more than the queue holds
                assert server.post(BODY).status_code == 200
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) == 0
