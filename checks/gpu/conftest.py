"""The device that is tested: this machine's first GPU, or an RPC server that stands in for it."""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.programs.offloaded import settings
from tests.support.programs.rpc_server import RpcServer, rpc_server
from worker.llama import library
from worker.settings import Settings

STAND_IN = "GPU_STAND_IN"  # set: an RPC server on loopback is tested


@dataclass(frozen=True)
class Accelerator:
    """A device that layers go to, as settings and as words of the command line name it."""

    name: str
    servers: tuple[RpcServer, ...] = ()

    def settings(self, layers: int, **given: Any) -> Settings:
        return settings(*self.servers, layers=layers, device=(self.name,), **given)

    @property
    def words(self) -> list[str]:
        rpc = [word for server in self.servers for word in ("--rpc", server.address)]
        return [*rpc, "--device", self.name, "-ngl", "all"]


@pytest.fixture(scope="module")
def gpu() -> Generator[Accelerator]:
    """One device, of whatever backend; without any, the tests are skipped.

    An RPC server has one client at a time: a module that keeps a worker has no other.
    """
    if STAND_IN in os.environ:
        with rpc_server() as server:
            yield Accelerator("RPC0", (server,))
        return
    names = [device.name for device in library.devices() if device.offloads]
    if not names:
        pytest.skip("the installed build sees no GPU: make check SUITE=gpu BACKEND=cuda")
    yield Accelerator(names[0])
