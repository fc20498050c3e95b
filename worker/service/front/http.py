"""uvicorn as we run it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import uvicorn

from worker.service.front.protocol import Protocol


def server_of(app: Any) -> uvicorn.Server:
    """A server for an ASGI application."""
    return _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=Protocol,
            server_header=False,
            ws="none",
        )
    )


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: it would raise the signal again, and exit 143."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
