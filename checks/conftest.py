"""What the tests share, for the checks too."""

from __future__ import annotations

from tests.conftest import (
    pytest_collection,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_xdist_make_scheduler,
    server,
    slow_server,
    tiny,
)

__all__ = [
    "pytest_collection",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_xdist_make_scheduler",
    "server",
    "slow_server",
    "tiny",
]
