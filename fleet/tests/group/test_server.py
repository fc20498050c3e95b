"""An RPC server in the charge of its actor, without Ray."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gguf_fleet.command import version
from gguf_fleet.group.server import RpcCharge, RpcServerGoneError
from tests.support.programs import PATIENCE_S, WORKER, until

HOST = "127.0.0.1"


@pytest.mark.rpc
def test_it_serves_until_it_is_lost() -> None:
    """It speaks this build's protocol; why it left is told."""

    async def test() -> None:
        charge = RpcCharge(HOST, 1)
        address = await charge.start()
        command = [sys.executable, *WORKER, "plan", "--rpc", address, "--json"]
        plan = await asyncio.to_thread(subprocess.check_output, command, timeout=PATIENCE_S)
        assert b'"RPC0"' in plan
        left = asyncio.create_task(charge.wait_for_exit())
        await asyncio.sleep(0)
        assert not left.done()
        process = charge._process  # pyright: ignore[reportPrivateUsage]
        assert process is not None
        process.kill()
        assert "left with code -9" in str(await left)

    asyncio.run(test())


@pytest.mark.rpc
def test_it_leaves_with_who_started_it() -> None:
    """Its standard input ends when that process does."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:  # the owner, in a process of its own

        async def own() -> None:
            charge = RpcCharge(HOST, 1)
            await charge.start()
            process = charge._process  # pyright: ignore[reportPrivateUsage]
            assert process is not None
            os.write(writer, str(process.pid).encode())
            await asyncio.sleep(600)

        asyncio.run(own())
        os._exit(1)
    pid = int(os.read(reader, 32))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    until(lambda: not Path(f"/proc/{pid}").exists(), 30)


def test_a_build_without_rpc_says_so() -> None:
    """The server's last words name the next step."""
    if version().build.rpc:
        pytest.skip("this build has RPC")

    async def test() -> None:
        with pytest.raises(RpcServerGoneError, match=r"left with code 2: .*make install RPC=1"):
            await RpcCharge(HOST, 1).start()

    asyncio.run(test())
