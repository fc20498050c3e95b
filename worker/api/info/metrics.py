"""GET /metrics."""

from __future__ import annotations

import time

from litestar import Response, get

from worker.api.common.body import HttpRequest
from worker.api.info.readings import Window
from worker.http import paths
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.requests.journal import Journal

# llama-server's way to tell a new process from counters that began anew.
_STARTED = {"Process-Start-Time-Unix": str(int(time.time()))}


@get(paths.METRICS, summary="Prometheus metrics")
async def metrics(
    request: HttpRequest, worker: Worker, loaded: Loaded, journal: Journal, window: Window
) -> Response[bytes]:
    """Counters, gauges and histograms as text, or as OpenMetrics for who accepts that."""
    from worker.api.info.collector import metrics_text  # prometheus_client takes 15 ms

    accept = request.headers.get("accept", "")
    text, media_type = metrics_text(worker, loaded, journal.outcomes, window, accept)
    return Response(text, media_type=media_type, headers=_STARTED)
