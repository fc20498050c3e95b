"""What a child answers when its work fails."""

from __future__ import annotations

import errno

import pytest

from worker.bench.stages import Failure, StageFrame, send_section


@pytest.mark.parametrize(
    ("number", "code", "more"),
    [
        (errno.ENOSPC, "NO_DISK_SPACE", " Free some room, or write to another disk."),
        (errno.EFBIG, "NO_DISK_SPACE", " Free some room, or write to another disk."),
        (errno.EACCES, "IO", ""),
    ],
)
def test_a_full_disk_has_a_next_step(number: int, code: str, more: str) -> None:
    """Other errors of files have their own words."""
    sent = list[StageFrame]()

    def work() -> None:
        raise OSError(number, "It failed", "/folder/file")

    send_section(sent.append, work)
    assert sent == [Failure(code=code, message=f"/folder/file: It failed.{more}")]
