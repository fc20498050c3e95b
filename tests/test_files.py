"""Files are written whole or not at all, into folders that have room."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from worker.errors import DiskSpaceError, UsageError
from worker.files import (
    atomic_write,
    cache_folder,
    check_room,
    free_bytes,
    lock,
    private_folder,
    scratch_folder,
    working_folder,
)


def test_the_target_appears_when_the_block_ends(tmp_path: Path) -> None:
    """Inside of the block the target is as it was; afterwards it holds the new bytes alone."""
    target = tmp_path / "report.json"
    target.write_text("old and longer")
    with atomic_write(target) as partial:
        partial.write_text("new")
        assert target.read_text() == "old and longer"
        assert partial.parent == target.parent
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("durable", [False, True])
def test_an_error_leaves_nothing(tmp_path: Path, durable: bool) -> None:
    """When the block raises, the old file stays and the new one is removed."""
    target = tmp_path / "model.gguf"
    target.write_text("old")

    def write_half() -> None:
        with atomic_write(target, durable=durable) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_block_that_writes_nothing(tmp_path: Path) -> None:
    """Nothing was written, so nothing appears, and the caller hears of it."""
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "a"):
        pass
    assert not list(tmp_path.iterdir())


def test_the_mode_is_that_of_any_new_file(tmp_path: Path) -> None:
    """The file may be read by whom the process's umask lets read."""
    plain, whole = tmp_path / "plain", tmp_path / "whole"
    plain.touch()
    with atomic_write(whole, durable=True) as partial:
        partial.touch()
    assert stat.S_IMODE(whole.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    """Of two writers at the same time one wins, and its file is whole."""
    target, both = tmp_path / "file", threading.Barrier(2)

    def write(letter: str) -> None:
        with atomic_write(target) as partial, partial.open("w") as file:
            file.write(letter * 1000)
            both.wait()
            file.write(letter * 1000)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target.read_text() in ("a" * 2000, "b" * 2000)
    assert list(tmp_path.iterdir()) == [target]


def test_a_target_that_another_process_removes(tmp_path: Path) -> None:
    """It comes and goes at any moment and is not taken for a device."""
    target, ended = tmp_path / "file", threading.Event()

    def remove() -> None:
        while not ended.is_set():
            target.unlink(missing_ok=True)

    thread = threading.Thread(target=remove)
    thread.start()
    try:
        for _ in range(2000):
            with atomic_write(target) as partial:
                partial.touch()
    finally:
        ended.set()
        thread.join()


def test_room_is_asked_for_before_writing(tmp_path: Path) -> None:
    """More bytes than the disk has free are refused, also in a folder that is still to be made."""
    folder = tmp_path / "new" / "folder"
    assert free_bytes(folder) > 0
    check_room(folder, 1, "a byte")
    with pytest.raises(DiskSpaceError, match=r"model\.gguf needs 8\.0 TiB in .*folder"):
        check_room(folder, max(8 << 40, free_bytes(folder) + (1 << 30)), "model.gguf")


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """XDG_CACHE_HOME says where it is, else it is in the home folder, else there is none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("bench") == tmp_path / "gguf-worker" / "bench"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder("bench") == tmp_path / ".cache" / "gguf-worker" / "bench"
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 5)
    with pytest.raises(UsageError, match=r"no home folder .* Set XDG_CACHE_HOME"):
        cache_folder("bench")


def test_a_private_folder(tmp_path: Path) -> None:
    """It is made with all above it, and nobody else may look into it."""
    folder = tmp_path / "a" / "b"
    assert private_folder(folder) == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    (folder / "file").touch()
    private_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == ["file"]


def test_folders_that_another_process_removes(tmp_path: Path) -> None:
    """At any moment: the folder is made again, and free room is that of the one above."""
    ended = threading.Event()

    def remove() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                (tmp_path / "a" / "b").rmdir()
                (tmp_path / "a").rmdir()

    thread = threading.Thread(target=remove)
    thread.start()
    made = 0
    try:
        for _ in range(300):
            assert free_bytes(tmp_path / "a" / "b") > 0
            with contextlib.suppress(UsageError):  # three tries may all be in vain
                private_folder(tmp_path / "a" / "b")
                made += 1
    finally:
        ended.set()
        thread.join()
    assert made


def test_no_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, a link and another user's folder are refused."""
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    with pytest.raises(UsageError, match=r"cannot be written to: .* Name another place"):
        private_folder(tmp_path / "file" / "below")
    for name in ("file", "link"):
        with pytest.raises(UsageError, match=f"{name} is no folder of this user"):
            private_folder(tmp_path / name)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UsageError, match="folder is no folder of this user"):
        private_folder(tmp_path / "folder")


@pytest.mark.parametrize("number", [errno.EEXIST, errno.EPERM, errno.ENOSYS])
def test_a_file_system_that_does_not_rename_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The file of that name is removed first; another failure leaves it."""
    target = tmp_path / "m"
    target.write_text("old")
    monkeypatch.setattr(Path, "replace", failing(number))
    with atomic_write(target) as partial:
        partial.write_text("new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("m", "new")]
    monkeypatch.setattr(Path, "replace", failing(errno.EIO))
    with pytest.raises(OSError, match="error"), atomic_write(target) as partial:
        partial.write_text("newer")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("m", "new")]


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_and_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Both are done without; an error of the disk is raised."""
    monkeypatch.setattr(os, "fsync", failing(number))
    monkeypatch.setattr(fcntl, "flock", failing(number))
    with atomic_write(tmp_path / "m", durable=True) as partial:
        partial.write_text("new")
    with (tmp_path / "m").open() as file:
        assert lock(file)
        monkeypatch.setattr(fcntl, "flock", failing(errno.EAGAIN))
        assert not lock(file)
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(OSError, match="error"), atomic_write(tmp_path / "n", durable=True) as one:
        one.write_text("new")


def failing(number: int) -> Callable[..., None]:
    """A call that fails with this number."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_read_only_disk_is_not_called_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no room either, and none that is made would help."""
    said = os.statvfs_result((4096, 4096, 100, 0, 0, 9, 9, 9, os.ST_RDONLY, 255))

    def full(path: object) -> os.statvfs_result:
        assert path
        return said

    monkeypatch.setattr(os, "statvfs", full)
    with pytest.raises(OSError, match="Read-only") as caught:
        check_room(tmp_path / "new", 1, "m:Q8_0")
    assert caught.value.filename == str(tmp_path / "new")
    check_room(tmp_path / "new", 0, "m:Q8_0")


def test_temporary_files_without_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie in the folder that is written to anyway, and go again."""

    def refuse() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    with scratch_folder(tmp_path) as folder:
        assert folder.parent == tmp_path
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("has_locks", [True, False])
def test_a_working_folder_of_a_dead_process_is_removed(
    has_locks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in use stays, and so do all if the file system has no locks; then its own goes."""
    dead, other = tmp_path / ".work-dead", tmp_path / "report"
    for folder in (dead, other):
        folder.mkdir()
        (folder / "lock").touch()
    if not has_locks:

        def unknown(*_: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", unknown)
    with working_folder(tmp_path, ".work-") as first, working_folder(tmp_path, ".work-") as second:
        assert first != second
        assert first.exists()
        assert dead.exists() == (not has_locks)
    assert set(tmp_path.iterdir()) == {other} | (set() if has_locks else {dead})
