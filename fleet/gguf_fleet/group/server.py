"""An RPC server in the charge of an actor of Ray's, on a machine other than its worker's.

The server leaves with the actor, however that ends: the actor holds its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections import deque

from gguf_fleet.errors import FleetError
from gguf_fleet.said import pass_on

_TRIES = 3
_LOOK_S = 0.05
_LAST_LINES = 5


class RpcServerGoneError(FleetError):
    """An RPC server left; the worker that used it cannot go on."""

    code = "RPC_SERVER"


class RpcCharge:
    """One RPC server process."""

    def __init__(self, host: str, threads: int, gpus: int = 0) -> None:
        """host: the IPv4 address on which it listens; threads: that compute, on a CPU

        gpus: that it serves, of those that this process may use; 0: the CPU
        """
        self._host = host
        self._threads = threads
        self._gpus = gpus
        self._process: asyncio.subprocess.Process | None = None
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Start it and wait until it listens: its HOST:PORT. Raises RpcServerGoneError.

        llama.cpp takes no port 0, and somebody else may take a free one first; then another is
        tried.
        """
        error: RpcServerGoneError | None = None
        for _ in range(_TRIES):
            port = _free_port(self._host)
            try:
                await self._start(port)
            except RpcServerGoneError as failed:
                error = failed
                continue
            return f"{self._host}:{port}"
        assert error is not None
        raise error

    async def wait_for_exit(self) -> RpcServerGoneError:
        """Wait until the server has left: why, as far as it said."""
        assert self._process is not None
        code = await self._process.wait()
        if self._reading is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._reading, 1)
        last = self._lines[-1] if self._lines else "it said nothing"
        return RpcServerGoneError(f"The RPC server left with code {code}: {last}")

    async def _start(self, port: int) -> None:
        # Ray's OMP_NUM_THREADS is not for a server that is told how many threads it has.
        inherited = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "worker.llama.rpc_server"),
            *(f"{self._host}:{port}", str(self._threads), str(self._gpus)),
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**inherited, "GGML_NO_BACKTRACE": "1"},
            start_new_session=True,
        )
        self._reading = asyncio.create_task(pass_on(process, self._lines))
        while process.returncode is None:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(self._host, port)
                writer.close()
                return
            await asyncio.sleep(_LOOK_S)
        raise await self.wait_for_exit()


def _free_port(host: str) -> int:
    with socket.socket() as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])
