"""GET /metrics."""

from __future__ import annotations

from litestar import Response, get

from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.service.front import paths


@get(paths.METRICS, summary="Prometheus metrics")
async def metrics(worker: Worker, loaded: Loaded) -> Response[bytes]:
    """Counters, gauges and histograms as text."""
    from worker.service.info.collector import metrics_text  # prometheus_client takes 15 ms

    # Litestar adds the charset, and Prometheus refuses a type that names one twice.
    return Response(metrics_text(worker, loaded), media_type="text/plain; version=0.0.4")
