"""What cannot run here is skipped, with the reason."""

from __future__ import annotations

import pytest

from gguf_fleet import log
from gguf_fleet.command import version

log.configure("console")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests over RPC need a build with it."""
    marked = [item for item in items if item.get_closest_marker("rpc")]
    if marked and not version().build.rpc:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="this build has no RPC: `make ... RPC=1`"))
