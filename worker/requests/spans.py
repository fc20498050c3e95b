"""A span for each request that was work, by OpenTelemetry; imported with --otel only.

Where they go the standard variables say: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME and the
others. A thread of the SDK sends them in batches; what its queue has no room for is dropped.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from worker import __version__
from worker.http import paths
from worker.requests.views import EndedRequest

if TYPE_CHECKING:
    from worker.requests.record import RequestRecord

_READ = TraceContextTextMapPropagator()


class Spans:
    """Made of what is left of a request when it ends."""

    def __init__(self, worker_id: str) -> None:
        """worker_id: tells this process from others of the same service"""
        ours = {SERVICE_NAME: "gguf-worker", "service.version": __version__}
        resource = Resource.create({**ours, "service.instance.id": worker_id})
        # What the environment says of the service counts more.
        resource = resource.merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("gguf-worker", __version__)

    def note(self, record: RequestRecord, ended: EndedRequest) -> None:
        """A request has ended just now. Nothing is sent here."""
        now, clock = time.time(), time.monotonic()

        def at(moment: float) -> int:
            """Nanoseconds of Unix time of a moment on the engine's clock."""
            return int((now - clock + moment) * 1e9)

        began = clock - ended.duration_s
        span = self._tracer.start_span(
            record.pattern or ended.route,
            context=_READ.extract(record.trace),
            kind=SpanKind.SERVER,
            attributes=_attributes(record, ended),
            start_time=at(began),
        )
        if record.work is not None:
            queued = record.work.began
            span.add_event("queued", timestamp=at(queued))
            if ended.first_token_s is not None:
                span.add_event("admitted", timestamp=at(queued + ended.wait_s))
                span.add_event("first token", timestamp=at(began + ended.first_token_s))
        if ended.outcome == "error":
            span.set_status(Status(StatusCode.ERROR, ended.code))
        span.end(at(clock))

    def close(self) -> None:
        """Send what is left; may take as long as the collector takes."""
        self._provider.shutdown()


def _attributes(record: RequestRecord, ended: EndedRequest) -> dict[str, AttributeValue]:
    """By OpenTelemetry's conventions for HTTP and for generative AI; nothing that a client sent
    but its ids."""
    method, _, path = (record.pattern or ended.route).partition(" ")
    found: dict[str, AttributeValue | None] = {
        "http.request.method": method,
        "http.route": path,
        "http.response.status_code": ended.status,
        "error.type": ended.code,
        "worker.outcome": ended.outcome,
        "worker.request_id": ended.id,
        "worker.correlation_id": ended.correlation_id,
    }
    if record.work is not None:
        found |= {
            "gen_ai.operation.name": "chat" if path in paths.CHATS else "text_completion",
            "gen_ai.provider.name": "gguf-worker",
            "gen_ai.request.model": ended.model,
            "gen_ai.response.model": ended.model,
            "gen_ai.usage.input_tokens": ended.prompt_tokens,
            "gen_ai.usage.cache_read.input_tokens": ended.cached_tokens,
            "gen_ai.usage.output_tokens": ended.generated_tokens,
        }
        if ended.outcome in ("stop", "length"):
            found["gen_ai.response.finish_reasons"] = (ended.outcome,)
    return {name: value for name, value in found.items() if value is not None}
