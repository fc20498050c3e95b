"""uvicorn as we run it, and the listening socket on the event loop.

asyncio's own servers accept all who come, and stop for a second where the descriptors run out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from uvicorn.config import Config
from uvicorn.server import Server

from worker import log
from worker.http.connections import Connections
from worker.http.protocol import Protocol
from worker.http.replies import AtOnce
from worker.http.tls import Certificate

# Accepted in one turn of the event loop; the others in it have theirs in between.
_BURST = 16
# Where the system gives no descriptor, whoever else holds them.
_PAUSE_S = 0.05
_SAY_S = 1.0
# A client that does not say goodbye, by TLS, is waited for so long; at least as long as a reader.
_GOODBYE_S = 30.0


class Listener:
    """Accepts connections, until `close`.

    make         the protocol of a new one, which is told `is_guest`
    certificate  its connections speak TLS
    """

    def __init__(
        self,
        sock: socket.socket,
        connections: Connections,
        make: Callable[..., Protocol],
        certificate: Certificate | None = None,
    ) -> None:
        self._sock = sock
        self._connections = connections
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._certificate = certificate
        self._opening: dict[asyncio.Task[object], None] = {}  # the oldest first
        self._pause: asyncio.TimerHandle | None = None
        self._said_at = 0.0
        sock.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accept nobody any more. The socket is not closed."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._sock)

    async def wait_closed(self) -> None:
        """As uvicorn asks a server."""

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(_BURST):
            had_room = self._connections.has_room()
            if not had_room and self._opening:
                if self._certificate is not None:  # a client may take its time to shake hands
                    next(iter(self._opening)).cancel()
                return  # what is not open yet cannot be closed; in the next turn it can
            try:
                accepted, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._on_exhaustion(error)
                return
            self._open(accepted, had_room)
            if not had_room:
                return  # what was closed for it gives its descriptor back in the next turn

    def _open(self, accepted: socket.socket, had_room: bool) -> None:
        may_stay, as_guest = (True, False) if had_room else self._connections.make_room()
        if not may_stay:
            accepted.close()
            return
        connection = self._make(is_guest=as_guest)
        self._connections.on_open(connection)
        opening = self._loop.create_task(
            self._loop.connect_accepted_socket(lambda: connection, accepted, **self._tls())
        )
        self._opening[opening] = None
        opening.add_done_callback(partial(self._on_open, connection))

    def _on_open(self, connection: Protocol, opening: asyncio.Task[object]) -> None:
        self._opening.pop(opening, None)
        if opening.cancelled() or opening.exception() is not None:
            self._connections.on_loss(connection)

    def _tls(self) -> dict[str, Any]:
        if self._certificate is None:
            return {}
        return {
            "ssl": self._certificate.context,
            "ssl_handshake_timeout": self._connections.receive_s,
            "ssl_shutdown_timeout": max(_GOODBYE_S, self._connections.send_s),
        }

    def _on_exhaustion(self, error: OSError) -> None:
        """The system gives no descriptor or no memory: try again soon, with one connection less."""
        self._connections.on_exhaustion()
        self._loop.remove_reader(self._sock)
        self._pause = self._loop.call_later(_PAUSE_S, self._listen)
        if self._loop.time() - self._said_at > _SAY_S:
            self._said_at = self._loop.time()
            log.get("service").warning("no connection can be accepted", error=repr(error))


# A connection without a request stays open for so long: a client, or a gateway, that comes back
# needs no new one. Where there is no room the one that rests longest goes at once.
REST_S = 75


def server_of(
    app: Any,
    connections: Connections,
    at_once: AtOnce | None = None,
    certificate: Certificate | None = None,
) -> Server:
    """A server for an ASGI application.

    at_once      answers what need not reach it
    certificate  of its sockets that are no files
    """
    config = Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        http=Protocol,
        server_header=False,
        ws="none",
        timeout_keep_alive=REST_S,
    )
    return _Server(config, connections, at_once, certificate)


class _Server(Server):
    """uvicorn with our listener, and without its signal handlers: it would raise the signal again,
    and exit 143."""

    def __init__(
        self,
        config: Config,
        connections: Connections,
        at_once: AtOnce | None,
        certificate: Certificate | None,
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._certificate = certificate
        self._at_once = at_once

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        make = partial(
            Protocol, self.config, self.server_state, self._connections, at_once=self._at_once
        )
        self.servers: Any = [
            Listener(
                sock,
                self._connections,
                make,
                None if sock.family == socket.AF_UNIX else self._certificate,
            )
            for sock in sockets or ()
        ]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
