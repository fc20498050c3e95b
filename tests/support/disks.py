"""A disk of kept states, waited for."""

from __future__ import annotations

from tests.support.programs.processes import PATIENCE_S
from worker.cache.disk import Disk


def flush(disk: Disk) -> None:
    """Wait until the folder is listed and nothing waits to be written."""

    def is_idle() -> bool:
        return not (disk._waiting or disk._to_use)  # pyright: ignore[reportPrivateUsage]

    assert disk._listed.wait(PATIENCE_S)  # pyright: ignore[reportPrivateUsage]
    with disk._change:  # pyright: ignore[reportPrivateUsage]
        assert disk._change.wait_for(is_idle, PATIENCE_S)  # pyright: ignore[reportPrivateUsage]
