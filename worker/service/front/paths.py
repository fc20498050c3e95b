"""Paths that the gate knows, before there are routes."""

from __future__ import annotations

# Open to everybody. The last two are the Open Inference Protocol's, which KServe probes.
HEALTH = [
    "/", "/health", "/v1/health", "/livez", "/readyz", "/v2/health/live", "/v2/health/ready",
]  # fmt: skip
PROGRESS = "/v1/loading/progress"
# Where other APIs than OpenAI's begin.
MESSAGES = "/v1/messages"
OLLAMA = "/api/"
# Where a full queue is told before anything else is done; jobs have their own words for it.
GENERATING = frozenset({
    "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/infill",
    "/api/chat", "/api/generate",
})  # fmt: skip
SHUTDOWN = ["/shutdown", "/v1/shutdown", "/v1/admin/shutdown"]
