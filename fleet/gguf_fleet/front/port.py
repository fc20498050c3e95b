"""The fleet's port on one machine: had by one gateway at a time, and left without a lost request.

A gateway whose turn it is not yet waits beside the one that has the port. It knows the replicas
already, so it answers as soon as the other one is gone.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from aiohttp import web

from gguf_fleet import log
from gguf_fleet.errors import BindError
from gguf_fleet.front.gateway import Gateway
from gguf_fleet.front.turn import Turn

_BACKLOG = 1024
# A connection without a request stays open for so long, as a worker's own.
_REST_S = 75.0
# Of a request's line, and of each header.
_MOST_HEADER = 1 << 16
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
        self._at = bare(host), port
        self._turn = Turn(host, port) if port else None  # 0 is a port of its own for each
        self._runner: web.AppRunner | None = None
        self._waiting: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        found = self._runner.addresses if self._runner is not None else []
        return found[0][1] if found else self._at[1]

    @property
    def listens(self) -> bool:
        return self._runner is not None and bool(self._runner.addresses)

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
        runner = self._runner
        if runner is not None:
            await self._hand_over()
            for site in runner.sites:
                await site.stop()
            self._gateway.is_leaving = True
            server = runner.server
            await self._look_until(lambda: not (server and server.connections), _LAST_ASKED_S)
            await runner.cleanup()
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
        host, port = self._at
        self._runner = web.AppRunner(
            self._gateway.application(),
            access_log=None,
            auto_decompress=False,
            handler_cancellation=True,  # a client that leaves ends its work
            keepalive_timeout=_REST_S,
            max_line_size=_MOST_HEADER,
            max_field_size=_MOST_HEADER,
            shutdown_timeout=None,  # how long streams may last is Ray's to say
        )
        await self._runner.setup()
        # Two gateways listen for a moment when one leaves the port to the other.
        site = web.TCPSite(self._runner, host, port, backlog=_BACKLOG, reuse_port=True)
        try:
            await site.start()
        except OSError as error:
            raise refusal(host, port, error) from None

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


def check_free(host: str, port: int) -> None:
    """Raise BindError where somebody listens there, or nobody can."""
    try:
        for family, _, _, _, address in socket.getaddrinfo(
            bare(host), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            socket.create_server(address[:2], family=family).close()  # pyright: ignore
    except OSError as error:
        raise refusal(host, port, error) from None


def refusal(host: str, port: int, error: OSError) -> BindError:
    why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
    return BindError(
        f"Cannot listen on {url_of(host, port).removeprefix('http://')}: {why}.",
        hint="Give the table [fleet] another host or port, or stop what uses it.",
    )


def url_of(host: str, port: int) -> str:
    """http://HOST:PORT; a number of IPv6 gets its brackets."""
    host = bare(host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def bare(host: str) -> str:
    """A host without the brackets around a number of IPv6."""
    return host.removeprefix("[").removesuffix("]")
