"""RPC servers as devices, and what the demo model says without them; a model beside its drafter."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs.offloaded import Loaded, load, settings
from tests.support.programs.rpc_server import RpcServer, rpc_server
from tests.support.sessions import Session, Truth
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


@pytest.fixture(scope="module")
def truth(pair: tuple[Path, Path]) -> Generator[Truth]:
    """What each request gets alone from the model of the module's `pair`, without its drafter."""
    truth = Truth(pair[0])
    yield truth
    truth.backend.close()


@pytest.fixture
def session(
    pair: tuple[Path, Path], truth: Truth, request: pytest.FixtureRequest
) -> Generator[Session]:
    """A session with the drafter; the test's parameter has its options."""
    options: dict[str, Any] = getattr(request, "param", {})
    session = Session(pair[0], truth, draft=pair[1], **options)
    yield session
    session.close()
