"""RPC servers as devices, and what the demo model says without them."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support.programs.offloaded import Loaded, load, settings
from tests.support.programs.rpc_server import RpcServer, rpc_server
from worker.demo import MODEL_PATH


@pytest.fixture(scope="module")
def device() -> Generator[RpcServer]:
    """One RPC server, for one process after the other."""
    with rpc_server() as server:
        yield server


@pytest.fixture(scope="module")
def second() -> Generator[RpcServer]:
    """Another one."""
    with rpc_server() as server:
        yield server


@pytest.fixture(scope="module")
def on_cpu() -> Loaded:
    """The demo model without any other device."""
    return load(MODEL_PATH, settings())
