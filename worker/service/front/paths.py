"""Paths that the gate knows, before there are routes."""

from __future__ import annotations

# Open to everybody. The last two are the Open Inference Protocol's, which KServe probes.
HEALTH = [
    "/", "/health", "/v1/health", "/livez", "/readyz", "/v2/health/live", "/v2/health/ready",
]  # fmt: skip
PROGRESS = "/v1/loading/progress"
METRICS = "/metrics"
REQUESTS = "/v1/requests"
# Where other APIs than OpenAI's begin.
MESSAGES = "/v1/messages"
OLLAMA = "/api/"
SHUTDOWN = ["/shutdown", "/v1/shutdown", "/v1/admin/shutdown"]
