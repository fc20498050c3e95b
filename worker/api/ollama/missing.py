"""Parts of Ollama's API that need a store of models: 501 with the next step."""

from __future__ import annotations

from litestar import Response, delete, post

from worker.errors import NotSupportedError


@post(["/api/pull", "/api/push", "/api/create", "/api/copy"], summary="Not here (Ollama)")
async def store_models() -> Response[bytes]:
    """There is no store."""
    raise NotSupportedError(
        "This worker serves one file and keeps no store of models.",
        hint="Get files with `worker pull`, and start a worker for each.",
    )


@delete("/api/delete", status_code=200, summary="Not here (Ollama)")
async def delete_model() -> Response[bytes]:
    """There is no store."""
    raise NotSupportedError("This worker serves one file and deletes none.")
