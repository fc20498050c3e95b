"""uvicorn as we run it."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Generator
from typing import Any

from worker.imports import bare_package

# Without uvicorn's commands: they take 16 ms of CPU time. One module asks the package for `Config`.
with bare_package("uvicorn") as package:
    from uvicorn.config import Config

    package.Config = Config
    importlib.import_module("uvicorn.lifespan.off")  # found by its name later
    from uvicorn.server import Server

    from worker.service.front.protocol import Protocol


def server_of(app: Any) -> Server:
    """A server for an ASGI application."""
    return _Server(
        Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=Protocol,
            server_header=False,
            ws="none",
        )
    )


class _Server(Server):
    """uvicorn without its signal handlers: it would raise the signal again, and exit 143."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
