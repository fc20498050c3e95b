"""Room on a disk, asked for before something large is written there."""

from __future__ import annotations

import shutil
from pathlib import Path

from worker.errors import DiskSpaceError
from worker.machine import human_bytes


def free_bytes(folder: Path) -> int:
    """Bytes that this user can still write below `folder`, which need not exist yet."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def check_room(folder: Path, nbytes: int, what: str) -> None:
    """Raise DiskSpaceError unless `nbytes` more fit into `folder`; `what` names them."""
    free = free_bytes(folder)
    if nbytes > free:
        raise DiskSpaceError(
            f"{what} needs {human_bytes(nbytes)} in {folder}, {human_bytes(free)} are free.",
            hint="Free some room, or take another disk.",
        )
