"""Random sequences, restarts and accidents over a folder: what is found is always right."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cache.states import ROW_BYTES, FakeState, check_parts, endings, ints, rest_of
from tests.support import accidents
from tests.support.accidents import block_files, cut, flipped
from tests.support.disks import flush
from worker.cache import folder
from worker.cache.disk import Disk
from worker.cache.folder import room_of
from worker.cache.store import Store

BIG = 1 << 30
TICK = 4096

# (what happens, a number for it, the earlier sequence, how much of it, what follows)
Step = tuple[str, int, int, int, list[int]]

steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["keep"] * 6 + ["find"] * 6 + ["restart", "other", "flip", "cut", "remove", "empty"]
            + ["full", "touch", "nonsense"]
        ),
        st.integers(0, 10_000),
        st.integers(0, 30),
        st.integers(0, 300),
        endings,
    ),
    min_size=1,
    max_size=30,
)  # fmt: skip


class Workers:
    """Two workers over one folder; each restarts without a word, as if it was killed."""

    def __init__(self, path: Path, memory: int, room: int, rest_bytes: int) -> None:
        self.path = path
        self.memory = memory
        self.room = room
        self.rest_bytes = rest_bytes
        self.disks: list[Disk] = []
        self.stores: list[Store] = []
        self.kept: list[list[int]] = []
        for _ in range(2):
            self.disks.append(self.new_disk())
            self.stores.append(self.new_store())

    def new_disk(self) -> Disk:
        """Another worker's view of the folder, once it is listed."""
        disk = Disk(self.path, self.room, b"model", ROW_BYTES)
        flush(disk)
        return disk

    def new_store(self) -> Store:
        """A store over the newest disk."""
        return Store(self.memory, needs_rest=bool(self.rest_bytes), disk=self.disks[-1])

    def restart(self, number: int) -> None:
        """The first worker is replaced; the two change places."""
        self.disks.pop(0).close(number % 2, [])
        self.stores.pop(0)
        self.disks.append(self.new_disk())
        self.stores.append(self.new_store())

    def close(self) -> None:
        """Both write what is not on disk yet, and end."""
        for store in self.stores:
            store.close(10)

    def find(self, tokens: list[int]) -> None:
        """What a prompt gets is the state after a beginning of it."""
        store = self.stores[0]
        found = store.find(ints(tokens))
        assert 0 <= found.num_tokens <= found.num_common <= len(tokens)
        loaded = store.load(found)
        if loaded is None:
            return
        assert 0 < loaded.num_tokens <= found.num_tokens
        beginning = tokens[: loaded.num_tokens]
        check_parts(loaded.parts, beginning)
        assert any(one[: len(beginning)] == beginning for one in self.kept)
        if self.rest_bytes:
            assert loaded.rest is not None
            assert (loaded.rest == rest_of(beginning, self.rest_bytes)).all()
            assert beginning in self.kept

    def step(self, what: str, number: int, tokens: list[int]) -> None:
        """One thing happens."""
        match what:
            case "keep":
                self.stores[0].keep(ints(tokens), FakeState(tokens, self.rest_bytes))
                self.kept.append(tokens)
            case "find":
                self.find(tokens)
            case "restart":
                self.restart(number)
            case "other":
                self.stores.reverse()
                self.disks.reverse()
            case "flip":
                accidents.damage(self.path, number, flipped)
            case "cut":
                accidents.damage(self.path, number, cut)
            case "remove":
                accidents.remove_some(self.path, number)
            case "empty":
                accidents.remove_folders(self.path)
            case "full":
                with mock.patch.object(folder, "write", full):
                    self.stores[0].keep(ints(tokens), FakeState(tokens, self.rest_bytes))
                    flush(self.disks[0])
                self.kept.append(tokens)
            case "touch":
                accidents.damage(self.path, number, lambda data, _: bytes(data))
            case _:
                for path in self.path.iterdir():
                    (path / f"{number:032x}-{number:032x}-{number % 64 + 1}.rows").write_bytes(b"x")


def full(*args: Any) -> None:
    """A disk without room."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@settings(max_examples=60, deadline=None)
@given(
    steps=steps,
    rest_bytes=st.sampled_from([0, 40, 4000]),
    memory=st.one_of(st.just(BIG), st.integers(1, 30_000)),
    room=st.one_of(st.just(BIG), st.integers(1, 20 * TICK)),
)
def test_what_is_found_is_right(steps: list[Step], rest_bytes: int, memory: int, room: int) -> None:
    """Whatever happens to the folder, rows and rests are those of the prompt's tokens."""
    sequences: list[list[int]] = []
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as running:
        workers = Workers(Path(place), memory, room, rest_bytes)
        running.callback(workers.close)
        for what, number, like, length, more in steps:
            start = sequences[like % len(sequences)][:length] if sequences else []
            sequences.append([*start, *more] or [1])
            workers.step(what, number, sequences[-1])
            for store in workers.stores:
                store.check_integrity()
                assert store.stats.memory_bytes <= memory
        workers.close()
        last = workers.new_disk()
        last.close(10, [])
        assert sum(room_of(path.stat().st_size) for path in block_files(workers.path)) <= room
