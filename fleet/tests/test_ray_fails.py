"""Ray that cannot start, as a fleet tells of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gguf_fleet import cluster as module
from gguf_fleet.cluster import ClusterError, cluster


class RaySystemError(Exception):
    """One of Ray's own, which are no errors of Python's kinds."""


@pytest.mark.parametrize(
    "error",
    [RaySystemError("The node\n timed out."), Exception("The node timed out"),
     ConnectionError("The node timed out."), AssertionError("The node timed out")],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_the_reason_and_the_log(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever Ray raises is one sentence with what its processes wrote last, and where."""
    logs = tmp_path / "ray" / "session_2" / "logs"
    old = tmp_path / "ray" / "session_9" / "logs"

    def init(*_: object, **__: object) -> None:
        logs.mkdir(parents=True)
        (logs / "raylet.err").write_text("\n")
        (logs / "gcs_server.out").write_text("I begins\n[1] E no room in /dev/shm\nI ends\n")
        raise error

    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    monkeypatch.setattr(module.time, "time", lambda: 1.0)
    with pytest.raises(ClusterError) as caught, cluster("127.0.0.1:1"):
        pass
    assert str(caught.value) == (
        "Ray does not come up: The node timed out. gcs_server.out says: [1] E no room in /dev/shm "
        f"Its logs are in {logs}."
    )


def test_without_a_log_and_a_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An error without words is called by its name."""

    def init(*_: object, **__: object) -> None:
        raise TimeoutError

    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    with (
        pytest.raises(ClusterError, match=r"Ray does not come up: TimeoutError\. Look at"),
        cluster("127.0.0.1:1"),
    ):
        pass
