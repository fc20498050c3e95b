"""How often an answer is written: each time is a call of the system, and wakes its client."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from worker.http.connections import Connections
from worker.http.protocol import Protocol


def writes(messages: list[Any], request: bytes = b"GET / HTTP/1.1\r\n") -> list[bytes]:
    """What an application's messages make a connection write; None among them: a pause."""
    written: list[bytes] = []
    transport = Mock(spec=asyncio.Transport)
    transport.get_extra_info.return_value = None
    transport.is_closing.return_value = False

    def write(data: bytes) -> None:
        if data:
            written.append(data)

    transport.write.side_effect = write

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        for message in messages:
            await (asyncio.sleep(0.001) if message is None else send(message))

    async def run() -> None:
        config = Config(app, log_config=None, access_log=False, lifespan="off", proxy_headers=False)
        config.load()
        state, connections = ServerState(), Connections(10, 60, 60)
        connection = Protocol(config, state, connections, is_guest=False)
        connections.on_open(connection)
        connection.connection_made(transport)
        connection.data_received(request + b"Host: localhost\r\n\r\n")
        while state.tasks:
            await asyncio.gather(*state.tasks)
        connection.connection_lost(None)

    asyncio.run(run())
    return written


def head(*fields: tuple[bytes, bytes]) -> Any:
    return {"type": "http.response.start", "status": 200, "headers": list(fields)}


def part(body: bytes, *, more: bool = False) -> Any:
    return {"type": "http.response.body", "body": body, "more_body": more}


LENGTH = (b"content-length", b"2")


def test_a_whole_answer_is_one_write() -> None:
    """Its head goes with its body."""
    (written,) = writes([head(LENGTH), part(b"ok")])
    assert written.startswith(b"HTTP/1.1 200 ")
    assert written.endswith(b"\r\n\r\nok")


def test_a_stream_begins_with_one_write() -> None:
    """The head goes with the first event; what comes later is written when it comes."""
    first, *others = writes([head(), part(b"a", more=True), None, part(b"b")])
    assert first.endswith(b"\r\n\r\n1\r\na\r\n")
    assert others == [b"1\r\nb\r\n0\r\n\r\n"]


@pytest.mark.parametrize("pause", [[None], [None, None]])
def test_a_head_waits_for_nothing(pause: list[None]) -> None:
    """Where no body follows at once it is written alone."""
    first, second = writes([head(LENGTH), *pause, part(b"ok")])
    assert first.endswith(b"\r\n\r\n")
    assert second == b"ok"


def test_a_head_alone_is_written() -> None:
    """That of HEAD, of an empty body, and of an answer that is never finished."""
    assert len(writes([head(LENGTH), part(b"")], b"HEAD / HTTP/1.1\r\n")) == 1
    assert len(writes([head((b"content-length", b"0")), part(b"")])) == 1
    assert len(writes([head(LENGTH)])) == 1
