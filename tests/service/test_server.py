"""The socket that the service listens on."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket

from tests.support.programs.processes import Server
from worker.http.sockets import bind


def test_answers_are_sent_at_once() -> None:
    """Connections of the listening socket are without Nagle's algorithm, which delays tokens."""

    async def scenario() -> int:
        accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def connected(_reader: object, writer: asyncio.StreamWriter) -> None:
            peer = writer.get_extra_info("socket")
            accepted.set_result(peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = bind("127.0.0.1", 0)
        async with await asyncio.start_server(connected, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            with contextlib.closing(writer):
                async with asyncio.timeout(10):
                    return await accepted

    assert asyncio.run(scenario()) != 0


def test_a_closed_connection_leaves_nothing(server: Server) -> None:
    """Memory does not follow the number of connections that were there: 8 kB each would show."""

    address = server.url.removeprefix("http://")

    def connect(times: int) -> None:
        for _ in range(times):
            with contextlib.closing(http.client.HTTPConnection(address)) as connection:
                connection.request("GET", "/health")
                assert connection.getresponse().read()

    connect(200)
    before = server.health()["memory_bytes"]
    connect(1_000)
    assert server.health()["memory_bytes"] - before < 4e6
