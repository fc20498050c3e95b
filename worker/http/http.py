"""uvicorn as we run it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from uvicorn.config import Config
from uvicorn.server import Server

from worker.http.connections import Connections
from worker.http.listener import Listener
from worker.http.protocol import Protocol
from worker.http.replies import AtOnce

# A connection without a request stays open for so long: a client, or a gateway, that comes back
# needs no new one. Where there is no room the one that rests longest goes at once.
REST_S = 75


def server_of(
    app: Any,
    connections: Connections,
    protocol: type[Protocol] = Protocol,
    at_once: AtOnce | None = None,
) -> Server:
    """A server for an ASGI application.

    protocol  of each connection
    at_once   answers what need not reach the application
    """
    config = Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        http=protocol,
        server_header=False,
        ws="none",
        timeout_keep_alive=REST_S,
    )
    return _Server(config, connections, partial(protocol, at_once=at_once))


class _Server(Server):
    """uvicorn with our listener, and without its signal handlers: it would raise the signal again,
    and exit 143."""

    def __init__(
        self, config: Config, connections: Connections, protocol: Callable[..., Protocol]
    ) -> None:
        super().__init__(config)
        self._protocol = protocol
        self._connections = connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        make = partial(self._protocol, self.config, self.server_state, self._connections)
        self.servers: Any = [Listener(sock, self._connections, make) for sock in sockets or ()]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
