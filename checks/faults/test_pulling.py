"""`worker pull` on a file system that refuses calls, or lacks them."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys

from tests.cli.conftest import content, home, hub, machine
from tests.support.cases import for_each
from tests.support.programs.pulling import Machine

__all__ = ["content", "home", "hub", "machine"]

# The command on a file system that refuses calls below the Hub's cache with an error.
_ODD = """
import fcntl, io, os, sys
kind, number, place = sys.argv[1], int(sys.argv[2]), os.environ["HF_HUB_CACHE"]
def refuse(module, name, applies):
    real = getattr(module, name)
    def call(*arguments, **more):
        if applies(*arguments, **more):
            raise OSError(number, os.strerror(number), str(arguments[0]))
        return real(*arguments, **more)
    setattr(module, name, call)
below = lambda path, *_, **__: str(path).startswith(place)
def writes(path, how="r", *_, **__):
    return below(path) and bool(how & (os.O_WRONLY | os.O_RDWR) if isinstance(how, int)
                                else set(how) & set("wax+"))
if kind == "write":
    for name in ("mkdir", "symlink", "unlink"):
        refuse(os, name, lambda *a, **_: below(a[-1] if len(a) > 1 and a[-1] != 0o777 else a[0])
               and not os.path.exists(a[0]))
    refuse(os, "open", writes)
    refuse(io, "open", writes)
elif kind == "outside":
    refuse(os, "open", lambda path, how=0, *_, **__: not below(path) and how & os.O_CREAT)
elif kind == "rename":
    refuse(os, "replace", lambda one, other: os.path.exists(other))
else:
    refuse(fcntl if kind == "flock" else os, kind, lambda *a: kind != "symlink" or below(a[1]))
sys.argv[:] = ["worker", *sys.argv[3:]]
from worker.cli.main import run
run()
"""


def odd(machine: Machine, kind: str, number: int, *words: str) -> subprocess.CompletedProcess[str]:
    """A command where calls of this kind fail with this number."""
    return subprocess.run(
        [sys.executable, "-c", _ODD, kind, str(number), *words],
        capture_output=True, text=True, timeout=60, check=False,
        env=machine.env(HF_HUB_CACHE=str(machine.home / "hub")),
    )  # fmt: skip


@for_each("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_what_is_here_needs_no_write(machine: Machine, number: int) -> None:
    """A pull of it reads alone; one of something else is a sentence with the folder and a step."""
    machine.pulled("tiny:Q4_0")
    done = odd(machine, "write", number, "pull", "tiny:Q4_0")
    assert done.returncode == 0, done.stderr
    for ref in machine.repo.glob("refs/*"):
        ref.unlink()
    done = odd(machine, "write", number, "pull", "tiny:Q4_0")
    assert done.returncode == 0, done.stderr
    done = odd(machine, "write", number, "pull", "tiny:Q8_0")
    assert done.returncode == 1
    (error,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert str(machine.home / "hub") in error
    if number == errno.ENOSPC:
        assert error.startswith("error: NO_DISK_SPACE: The disk of ")
    else:
        assert error.startswith("error: CACHE_UNUSABLE: ")
        assert "Set HF_HOME to a folder that can be written to" in error


@for_each(
    "kind, number",
    [("flock", errno.ENOLCK), ("flock", errno.ENOSYS), ("flock", errno.EOPNOTSUPP),
     ("fsync", errno.EINVAL), ("fsync", errno.ENOSYS), ("rename", errno.EEXIST),
     ("symlink", errno.EPERM)],
)  # fmt: skip
def test_calls_that_a_file_system_lacks(machine: Machine, kind: str, number: int) -> None:
    """Locks, fsync, links and renames over a file are done without."""
    if machine.repo.exists():
        shutil.rmtree(machine.repo)
    done = odd(machine, kind, number, "pull", "tiny:Q4_0")
    assert done.returncode == 0, done.stderr
    assert machine.usable() == ["tiny.Q4_0.gguf"]


def test_only_the_cache_is_writable(machine: Machine) -> None:
    """A container whose root is read-only has no place for temporary files."""
    done = odd(machine, "outside", errno.EROFS, "pull", "tiny:F32")
    assert done.returncode == 0, done.stderr
    assert len(machine.usable()) == 2
    assert {path.name for path in machine.repo.iterdir()} == {"blobs", "refs", "snapshots"}
