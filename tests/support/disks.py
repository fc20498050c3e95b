"""A disk of kept states, waited for."""

from __future__ import annotations

from worker.cache.disk import Disk


def flush(disk: Disk) -> None:
    """Wait until the folder is listed and nothing waits to be written."""
    disk._listed.wait()  # pyright: ignore[reportPrivateUsage]
    with disk._change:  # pyright: ignore[reportPrivateUsage]
        disk._change.wait_for(lambda: not (disk._waiting or disk._to_use))  # pyright: ignore[reportPrivateUsage]
