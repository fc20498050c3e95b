"""Conversations on disk: found after a restart, and nothing wrong is ever believed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from tests.cache.states import ROW_BYTES, FakeState, check_parts, ints, rest_of
from tests.support.disks import flush
from worker import log
from worker.cache import block_file, disk, folder
from worker.cache.block import CHAIN_BYTES
from worker.cache.block_file import key_of
from worker.cache.disk import Disk
from worker.cache.folder import BlockFolder, room_of
from worker.cache.state import BLOCK
from worker.cache.store import Store
from worker.errors import UsageError
from worker.memory.saved_states import disk_limit
from worker.settings import Settings

BIG = 1 << 30
A = list(range(100, 300))  # 200 tokens: three whole blocks and 8 tokens

Opens = Callable[..., Store]


class Opened:
    """Stores over one folder, as workers that follow each other or run side by side."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disks: list[Disk] = []

    def __call__(
        self,
        *,
        memory: int = BIG,
        room: int = BIG,
        needs_rest: bool = False,
        identity: bytes = b"model",
        waiting: int = BIG,
    ) -> Store:
        """One more worker's store."""
        self.disks.append(Disk(self.path, room, identity, ROW_BYTES, max_waiting=waiting))
        flush(self.disks[-1])
        return Store(memory, needs_rest=needs_rest, disk=self.disks[-1])

    def flush(self) -> None:
        """Wait until all have written what they had to."""
        for one in self.disks:
            flush(one)

    def files(self) -> list[Path]:
        """All files in the models' folders."""
        return sorted(path for path in self.path.glob("*/*") if path.is_file())

    def keep(self, store: Store, tokens: list[int], rest_bytes: int = 0, key: bytes = b"") -> None:
        """Keep a sequence and wait until it is written."""
        store.keep(ints(tokens), FakeState(tokens, rest_bytes), key)
        self.flush()
        store.check_integrity()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Stores over a folder that does not exist yet; closed in the end."""
    stores = Opened(tmp_path / "made" / "later")
    yield stores
    for one in stores.disks:
        one.close(10, [])


@contextlib.contextmanager
def log_lines() -> Generator[list[MutableMapping[str, Any]]]:
    """What is logged meanwhile, of warnings and errors."""
    log.configure("console")
    try:
        with capture_logs() as lines:
            yield lines
    finally:
        log.configure("console", "error")


def num_found(store: Store, tokens: list[int]) -> int:
    """How many tokens of a prompt are loaded; they are checked."""
    loaded = store.load(store.find(ints(tokens)))
    store.check_integrity()
    if loaded is None:
        return 0
    check_parts(loaded.parts, tokens[: loaded.num_tokens])
    return loaded.num_tokens


def test_a_restart_finds_everything(opened: Opened) -> None:
    """A new worker finds what the last one kept, also when that one was killed."""
    first = opened()
    opened.keep(first, A)
    opened.keep(first, [*A[:100], 1, 2])
    second = opened()
    found = second.find(ints([*A, 7]))
    assert (found.num_tokens, found.num_common) == (200, 200)
    assert found.num_read == second.stats.disk_bytes - sum(
        room_of(p.stat().st_size) - p.stat().st_size for p in opened.files()
    ) - sum(p.stat().st_size for p in opened.files() if "-38." in p.name)
    assert num_found(second, [*A, 7]) == 200
    assert num_found(second, [*A[:100], 1, 2]) == 102
    assert second.stats.disk_read > found.num_read > 0
    assert second.stats.disk_errors == 0
    # It is in memory again.
    assert second.holds(ints(A))
    assert second.find(ints(A)).num_read == 0


def test_a_rest_comes_back(opened: Opened) -> None:
    """Where a rest is needed, the deepest one is found whose rows are there too."""
    first = opened(needs_rest=True)
    opened.keep(first, A[:100], 30)
    opened.keep(first, A, 30)
    second = opened(needs_rest=True)
    found = second.find(ints(A[:180]))
    assert (found.num_tokens, found.num_common) == (100, 192 - 64)
    loaded = second.load(second.find(ints([*A, 9])))
    assert loaded is not None
    assert loaded.num_tokens == 200
    assert loaded.rest is not None
    assert np.array_equal(loaded.rest, rest_of(A, 30))
    check_parts(loaded.parts, A)
    assert num_found(second, A[:180]) == 100
    second.check_integrity()


def test_another_model_finds_nothing(opened: Opened) -> None:
    """What belongs to other weights, cache types or builds has a folder of its own."""
    opened.keep(opened(), A)
    assert num_found(opened(identity=b"other"), A) == 0
    assert len(list(opened.path.iterdir())) == 2


def test_files_are_private(opened: Opened) -> None:
    """Conversations are for this user alone, whatever the umask says."""
    before = os.umask(0)
    try:
        opened.keep(opened(), A)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in opened.files()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in opened.path.iterdir()} == {0o700}


def test_a_longer_block_replaces_the_shorter_one(opened: Opened) -> None:
    """A conversation that goes on leaves no files behind that nobody needs."""
    store = opened()
    for length in range(150, 190, 10):
        opened.keep(store, A[:length])
    names = [path.name for path in opened.files()]
    assert len(names) == 3
    assert sum(name.endswith("-52.rows") for name in names) == 1


def test_damaged_files_are_a_miss_and_are_removed(opened: Opened) -> None:
    """A flipped byte: the tokens before it are used, the file goes, the log has one line."""
    opened.keep(opened(), A)
    damaged = opened.files()[0]
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    with log_lines() as lines:
        store = opened()
        assert num_found(store, A) in (0, 64, 128, 192)
        assert num_found(store, A) in (0, 64, 128, 192)
    assert [line["file"] for line in lines] == [damaged.name]
    assert not damaged.exists()
    assert store.stats.disk_errors == 1


def test_every_file_truncated_or_gone(opened: Opened) -> None:
    """Whatever is left of the files, what is found is right."""
    opened.keep(opened(), A)
    for path in opened.files()[::2]:
        path.write_bytes(path.read_bytes()[:-3])
    store = opened()
    store.find(ints(A))
    for path in opened.files()[1::2]:
        path.unlink()
    assert num_found(store, A) == 0
    assert store.stats.disk_errors <= 1


def test_what_is_gone_is_a_miss(opened: Opened) -> None:
    """A file that was given up between the look and the reading: no error, no line in the log.

    What is before it is found, and what is computed again is written again.
    """
    opened.keep(opened(), A)
    after = {path.name.split("-")[0]: path for path in opened.files()}  # by what is before them
    first = (after.keys() - {path.name.split("-")[1] for path in after.values()}).pop()
    second = after[after[first].name.split("-")[1]]
    with log_lines() as lines:
        store = opened()
        found = store.find(ints(A))
        second.unlink()
        state = store.load(found)
        assert found.num_tokens == 200
        assert state is not None
        assert state.num_tokens == 64
        opened.keep(store, A)
    assert lines == []
    assert store.stats.disk_errors == 0
    assert num_found(opened(), A) == 200


def test_a_bad_rest_leads_to_the_one_before(opened: Opened) -> None:
    """A damaged rest costs only what lies between it and the rest before it."""
    first = opened(needs_rest=True)
    opened.keep(first, A[:70], 30)
    opened.keep(first, A, 30)
    (last,) = [path for path in opened.files() if path.name.endswith("-8.rest")]
    last.write_bytes(b"")
    assert num_found(opened(needs_rest=True), A) == 70


def test_what_cannot_be_read_is_left_alone(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the system does not give out is a miss, one line, and stays where it is."""
    opened.keep(opened(), A)

    def refuse(*args: Any) -> np.ndarray:
        raise PermissionError(errno.EACCES, "Permission denied")

    with log_lines() as lines:
        store = opened()
        with monkeypatch.context() as patch:
            patch.setattr(folder, "read", refuse)
            assert num_found(store, A) == 0
            assert num_found(store, A) == 0
    assert [line["reason"] for line in lines] == ["Permission denied"]
    assert len(opened.files()) == 4


@pytest.mark.parametrize("reason", [OSError(errno.EMFILE, "Too many open files"), MemoryError()])
def test_what_cannot_be_read_for_the_moment(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, reason: Exception
) -> None:
    """It is read later."""
    opened.keep(opened(), A)
    monkeypatch.setattr(disk, "_LOOK_S", 0.001)

    def fail(*_: Any) -> None:
        raise reason

    store = opened()
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(folder, "read", fail)
        assert num_found(store, A) == 0
    assert store.stats.disk_errors > 0
    wait_until(lambda: store.find(ints(A)).num_tokens == 200)
    assert num_found(store, A) == 200


def test_foreign_things_in_the_folder(opened: Opened, tmp_path: Path) -> None:
    """Names of nonsense, links, folders and pipes are neither read, counted nor removed."""
    opened.keep(opened(), A)
    place = opened.files()[0].parent
    count = len(list(place.iterdir()))
    name = f"{'0' * 32}-{'1' * 32}-64.rows"
    (tmp_path / "secret").write_text("x")
    (place / name).symlink_to(tmp_path / "secret")
    (place / name.replace("64", "63")).mkdir()
    os.mkfifo(place / name.replace("64", "62"))
    (place / "notes.txt").write_text("mine")
    (place / "..rows").write_text("")
    (place / b"\xff\xfe-64.rows".decode(errors="surrogateescape")).write_text("")
    store = opened()
    assert num_found(store, A) == 200
    assert store.stats.disk_bytes == 4 * 4096
    assert len(list(place.iterdir())) == count + 6


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_folder_with_the_name_of_a_file(opened: Opened, make: Callable[[Path], None]) -> None:
    """Or a pipe: one line in the log for that file; all others are written."""
    opened.keep(opened(), A)
    taken = opened.files()[0]
    taken.unlink()
    make(taken)
    with log_lines() as lines:
        store = opened()
        opened.keep(store, A)
        opened.keep(store, A)
        opened.keep(store, [1] * 100)
    assert [(line["event"], line["file"]) for line in lines] == [
        ("a kept block cannot be used", taken.name)
    ]
    assert store.stats.disk_errors == 1
    assert len(opened.files()) == 3 + 2
    assert not [path for path in taken.parent.iterdir() if path.name.endswith(".partial")]


def test_the_folder_stays_within_its_size(opened: Opened) -> None:
    """The files that were not used for the longest time go; a conversation's end before it."""
    room = 20 * 4096
    store = opened(room=room)
    chats = [[i] * 300 for i in range(10)]  # five blocks each
    for i, chat in enumerate(chats):
        opened.keep(store, chat)
        if i > 0:
            assert num_found(store, chats[0]) == 300  # from memory; its files are used with it
            opened.flush()
        assert sum(room_of(path.stat().st_size) for path in opened.files()) <= room
    again = opened(room=room)
    assert num_found(again, chats[0]) == 300
    assert num_found(again, chats[9]) == 300
    assert num_found(again, chats[2]) == 0


def test_files_of_others_count(opened: Opened) -> None:
    """A worker with less room brings the folder down to it; one file larger than all goes too."""
    opened.keep(opened(), [1] * 640)
    huge = opened.files()[0].with_name(f"{'0' * 32}-{'1' * 32}-64.rows")
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    store = opened(room=5 * 4096)
    assert num_found(store, [1] * 640) == 256
    assert not huge.exists()
    assert len(opened.files()) == 4


def test_leftovers_are_swept(opened: Opened) -> None:
    """A file that a dead writer left half done goes; one that is being written stays."""
    opened.keep(opened(), A)
    place = opened.files()[0].parent
    dead, living = place / ".a.rows.1234.partial", place / ".b.rows.1234.partial"
    dead.write_bytes(b"half")
    with living.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert num_found(opened(), A) == 200
        assert living.exists()
    assert not dead.exists()
    opened()
    assert not living.exists()
    dead.write_bytes(b"half")
    opened(identity=b"another model")
    assert not dead.exists()


def test_two_workers_share_a_folder(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each finds what the other one has written."""
    monkeypatch.setattr(disk, "_LOOK_S", 0.001)
    one, other = opened(), opened()
    assert num_found(other, A) == 0
    opened.keep(one, A)
    wait_until(lambda: other.find(ints(A)).num_tokens == 200)
    assert num_found(other, A) == 200
    opened.keep(other, [*A, *A])
    wait_until(lambda: one.find(ints([*A, *A])).num_tokens == 400)
    assert num_found(one, [*A, *A]) == 400


def test_a_change_that_the_clock_hides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that comes in the same tick as the listing of the folder is found a little later."""
    one, other = (BlockFolder(tmp_path / "made", BIG, b"model", ROW_BYTES) for _ in range(2))
    monkeypatch.setattr(folder, "_TICK_NS", BIG * BIG)
    other.refresh()
    listed = one.path.stat().st_mtime_ns
    tokens = ints(A[:BLOCK]).tobytes()
    key = key_of("rows", one.identity[:CHAIN_BYTES], tokens)
    rows = FakeState(A).rows(0, BLOCK)
    assert one.write(key, tokens, rows, listed)
    assert not one.write(key, tokens, rows, listed)
    os.utime(one.path, ns=(listed, listed))
    other.refresh()
    assert key not in other.index
    monkeypatch.setattr(folder, "_TICK_NS", -BIG * BIG)
    other.refresh()
    assert key in other.index


def test_the_folder_of_another_model_comes_and_goes(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last block is removed by yet another worker, at any moment; writing goes on."""
    monkeypatch.setattr(disk, "_LOOK_S", 0)
    monkeypatch.setattr(folder, "_LIST_AGAIN_S", 0)
    store, other, ended = opened(), opened.path / ("0" * 32), threading.Event()

    def disturb() -> None:
        while not ended.is_set():
            other.mkdir()
            other.rmdir()

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for i in range(100):
            opened.keep(store, [i] * 100)
            disk_limit(Settings(model="", cache_dir=str(opened.path)))
    finally:
        ended.set()
        thread.join()
    assert num_found(opened(), [99] * 100) == 100
    assert store.stats.disk_errors == 0


def wait_until(holds: Callable[[], bool]) -> None:
    """Ask again until it holds; after a minute it never will."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.005)


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_a_full_disk_ends_writing_only(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    """Until there is room, with one line in the log; what is there is still read, what is kept
    stays in memory."""
    opened.keep(opened(), A)

    def full(*args: Any) -> None:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(folder, "write", full)
    with log_lines() as lines:
        store = opened()
        assert num_found(store, A) == 200
        for i in range(5):
            opened.keep(store, [i] * 100)
            assert num_found(store, [i] * 100) == 100
        assert store.stats.disk_errors == 1
        assert len(opened.files()) == 4
        monkeypatch.undo()
        opened.disks[-1]._resumes = time.monotonic()  # pyright: ignore[reportPrivateUsage]
        opened.keep(store, [7] * 100)
    assert [line["event"] for line in lines] == [
        "the cache is not written to disk; it is tried again each minute",
        "the cache is written to disk again",
    ]
    assert num_found(opened(), [7] * 100) == 100


def test_what_another_worker_removes_meanwhile(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as an error, and the next block is written."""
    store = opened()

    def vanish(*args: Any, **options: Any) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    with monkeypatch.context() as others:
        others.setattr(folder, "write", vanish)  # the unfinished file
        others.setattr(tempfile, "TemporaryFile", vanish)  # and the folder
        opened.keep(store, A)
    assert store.stats.disk_errors > 0
    opened.keep(store, [1] * 100)
    assert num_found(opened(), [1] * 100) == 100


def test_a_disk_that_is_full_in_the_middle_of_a_file(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left of a file that did not fit."""
    store = opened()
    opened.keep(store, A)

    def full(*args: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(block_file.os, "utime", full)
    opened.keep(store, [1] * 100)
    assert len(list(opened.files()[0].parent.iterdir())) == 4


def test_the_folder_may_vanish(opened: Opened) -> None:
    """Somebody removes all: it is a miss; what is kept from then on is written again."""
    opened.keep(opened(), A)
    store = opened(memory=1)  # nothing stays in memory
    assert store.find(ints(A)).num_tokens == 200
    for path in opened.files():
        path.unlink()
    for path in [*opened.path.iterdir(), opened.path]:
        path.rmdir()
    assert num_found(store, A) == 0
    store = opened()
    opened.keep(store, A)
    for path in opened.files():
        path.unlink()
    for path in [*opened.path.iterdir(), opened.path]:
        path.rmdir()
    opened.keep(store, [1] * 100)
    assert num_found(opened(), [1] * 100) == 100


def test_what_does_not_fit_the_queue_is_not_written(opened: Opened) -> None:
    """The beginning is written, what follows is counted; closing writes it."""
    store = opened(waiting=2 * 64 * ROW_BYTES)
    with log_lines() as lines:
        opened.keep(store, A)
    assert lines == []
    assert store.stats.disk_errors == 2
    assert len(opened.files()) == 2
    store.close(10)
    assert num_found(opened(), A) == 200


def test_closing_writes_the_most_useful_first(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While there is time: the newest, and of it the beginning first."""
    store = opened(waiting=0)
    opened.keep(store, [1] * 200)
    opened.keep(store, [2] * 200)
    assert opened.files() == []
    ticks = iter([0, 1, 2, 3, 9])
    monkeypatch.setattr(disk.time, "monotonic", lambda: next(ticks))
    store.close(3)
    monkeypatch.undo()
    assert num_found(opened(), [2] * 200) == 192
    assert num_found(opened(), [1] * 200) == 0


def test_closing_without_time_writes_nothing(opened: Opened) -> None:
    """A worker that must go goes."""
    store = opened()
    opened.keep(store, A)
    store.close(0)
    opened.disks.clear()
    assert len(opened.files()) == 4


def test_a_folder_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who names a wrong folder hears of it at the start."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written to"):
        Disk(tmp_path / "file" / "below", BIG, b"model", ROW_BYTES)
    made = Disk(tmp_path / "one", BIG, b"model", ROW_BYTES)
    made.close(10, [])
    (sub,) = (tmp_path / "one").iterdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / sub.name).symlink_to(sub)
    with pytest.raises(UsageError, match="no folder of this user"):
        Disk(tmp_path / "two", BIG, b"model", ROW_BYTES)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(UsageError, match="no folder of this user"):
        Disk(tmp_path / "one", BIG, b"model", ROW_BYTES)


def test_other_models_count_too(opened: Opened) -> None:
    """One folder holds as much as allowed of all models; the oldest go first, whose they are."""
    room = 6 * room_of(64 * ROW_BYTES + 500)
    first = opened(room=room, identity=b"first")
    opened.keep(first, A)
    written = opened.files()
    assert len(written) == 4
    for path in written:
        os.utime(path, ns=(1, 1))
    second = opened(room=room, identity=b"second")
    opened.keep(second, list(range(500, 700)))
    assert sum(room_of(path.stat().st_size) for path in opened.files()) <= room
    assert second.find(ints(list(range(500, 700)))).num_tokens == 200
    left = [path for path in written if path.exists()]
    assert 0 < len(left) < len(written)
    third = opened(room=room, identity=b"third")
    opened.keep(third, list(range(1_000, 1_380)))
    assert not [path for path in written if path.exists()]
    assert not written[0].parent.exists()


def test_another_key(opened: Opened) -> None:
    """What was kept of a prompt is found by prompts with its key alone, also after a restart."""
    for key in (b"", b"a"):
        opened.keep(opened(), A, key=key)
        again = opened()
        assert again.find(ints(A), key).num_tokens == len(A)
        assert again.find(ints(A), b"b").num_tokens == 0
        assert again.holds(ints(A), b"b") is False
        loaded = again.load(again.find(ints(A), key))
        assert loaded is not None
        assert again.holds(ints(A), key)
        assert not again.holds(ints(A), b"b")
