"""uvicorn as we run it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

# A first request's headers must be here by then.
HEADER_TIMEOUT_S = 30.0


def server_of(app: Any) -> uvicorn.Server:
    """A server for an ASGI application."""
    return _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=_Protocol,
            server_header=False,
            ws="none",
        )
    )


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: it would raise the signal again, and exit 143."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Protocol(H11Protocol):
    """uvicorn's HTTP/1.1, but a connection that says nothing, or too slowly, is closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEADER_TIMEOUT_S, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._deadline.cancel()  # it would hold on to 8 kB for each connection until then

    def _close_if_silent(self) -> None:
        started = getattr(self, "cycle", None) is not None  # None before the first request
        if not started and not self.transport.is_closing():
            self.transport.close()
