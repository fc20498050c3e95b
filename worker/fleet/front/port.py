"""The fleet's port on one machine: had by one gateway at a time, and left without a lost request.

A gateway whose turn it is not yet waits beside the one that has the port. It knows the replicas
already, so it answers as soon as the other one is gone.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from worker import log
from worker.errors import BindError
from worker.fleet.front.gateway import Gateway
from worker.fleet.front.turn import Turn
from worker.http.connections import Connections
from worker.http.http import server_of
from worker.http.sockets import listen
from worker.http.wire import WiredProtocol
from worker.limits import RECEIVE, SEND

# Of clients at once; a stream takes another descriptor, of its connection to the worker.
CONNECTIONS = 16_384
# Between two looks whether it is this one's turn.
_WAIT_S = 0.05
# A successor that is there takes its turn in this time; both listen for a moment then.
_HANDED_OVER_S = 0.5
# So long after the port was left connections that rest may still ask: each answer closes its own.
_LAST_ASKED_S = 1.0
_LOOK_S = 0.02


class FleetPort:
    """Serves a gateway on the event loop that it was opened on."""

    def __init__(self, gateway: Gateway, host: str, port: int) -> None:
        self._gateway = gateway
        self._at = host, port
        self._turn = Turn(host, port) if port else None  # 0 is a port of its own for each
        self._connections = Connections(CONNECTIONS, RECEIVE.most, SEND.most)
        self._server = server_of(gateway, self._connections, WiredProtocol, trusts_forwarded=False)
        self._socks: list[socket.socket] = []
        self._waiting: asyncio.Task[None] | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """Where it listens, or will."""
        return self._socks[0].getsockname()[1] if self._socks else self._at[1]

    @property
    def listens(self) -> bool:
        """Whether it takes new connections."""
        return bool(self._socks)

    async def open(self) -> None:
        """Serve from now on, or as soon as it is this one's turn. Raises BindError."""
        if self._turn is None or self._turn.take():
            await self._serve()
        else:
            log.get("gateway").info("waits for the port", port=self.port)
            self._waiting = asyncio.create_task(self._wait(self._turn))

    async def close(self) -> None:
        """Listen no longer, and wait until all that was begun is answered."""
        if self._waiting is not None:
            self._waiting.cancel()
        if self._socks:
            await self._hand_over()
            for each in self._server.servers:
                each.close()
            self._server.servers = []
            for sock in self._socks:
                sock.close()
            self._socks = []
        self._gateway.is_leaving = True
        await self._look_until(lambda: not self._connections.count, _LAST_ASKED_S)
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        await self._gateway.close()

    async def _wait(self, turn: Turn) -> None:
        while not turn.take():
            await asyncio.sleep(_WAIT_S)
        log.get("gateway").info("takes the port", port=self.port)
        try:
            await self._serve()
        except BindError as error:  # Ray makes another one, and this one's turn is over
            log.get("gateway").error("cannot take the port", why=str(error))
            os._exit(1)

    async def _serve(self) -> None:
        # Two gateways listen for a moment when one leaves the port to the other.
        self._socks = listen(*self._at, shared=True)
        self._serving = asyncio.create_task(self._server.serve(sockets=self._socks))
        while not self._server.started:
            await asyncio.sleep(0)

    async def _hand_over(self) -> None:
        """Let a successor listen before this one does no longer, where there is one."""
        if self._turn is not None:
            self._turn.leave()
            await self._look_until(self._has_successor, _HANDED_OVER_S)
            await asyncio.sleep(_LOOK_S)  # with its turn it binds

    def _has_successor(self) -> bool:
        turn = Turn(*self._at)
        is_free = turn.take()
        turn.leave()
        return not is_free

    async def _look_until(self, true: Callable[[], bool], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until and not true():
            await asyncio.sleep(_LOOK_S)
