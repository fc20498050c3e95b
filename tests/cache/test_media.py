"""What is kept of media: in memory and in a folder, each within its bounds."""

from __future__ import annotations

import os
from pathlib import Path

from worker.cache.media import MediaStore


def test_who_was_not_asked_for_leaves(tmp_path: Path) -> None:
    """In memory as in the folder, and what is larger than all of it is not kept."""
    names = [bytes([place]) * 32 for place in range(4)]
    memory = MediaStore(300, None, 0)
    for name in names[:3]:
        memory.put(name, name * 3)
    assert memory.get(names[0]) == names[0] * 3
    memory.put(names[3], names[3] * 3)
    memory.put(b"large", bytes(301))
    assert [memory.get(name) is not None for name in names] == [True, False, True, True]
    assert memory.num_bytes == 3 * 96
    assert memory.get(b"large") is None
    folder = MediaStore(0, tmp_path / "media-a", 300)
    for place, name in enumerate(names):
        folder.put(name, name * 2)
        os.utime(tmp_path / "media-a" / name.hex(), (place, place))
    folder.put(b"new", bytes(64))
    held = [folder.get(name) is not None for name in names]
    assert (held[0], held[3]) == (False, True)
    assert folder.get(b"new") == bytes(64)
    other = MediaStore(0, tmp_path / "media-b", 300)
    other.put(b"other", bytes(250))
    assert len(list(tmp_path.glob("media-*/*"))) == 1


def test_what_happens_to_the_folder(tmp_path: Path) -> None:
    """One that is removed is made again; what is no file is left alone and not waited for."""
    place = tmp_path / "media-a"
    store = MediaStore(0, place, 100)
    place.rmdir()
    store.put(b"a", bytes(64))
    (place / "0").mkdir()
    os.utime(place / "0", (1, 1))
    store.put(b"b", bytes(64))
    assert [store.get(name) is not None for name in (b"a", b"b")] == [False, True]
    os.mkfifo(place / b"c".hex())
    assert store.get(b"c") is None


def test_a_damaged_file(tmp_path: Path) -> None:
    """It is put aside; until then the last one written counts."""
    store = MediaStore(0, tmp_path, 1000)
    store.put(b"a", b"one")
    store.put(b"a", b"two")
    assert store.get(b"a") == b"two"
    path = tmp_path / b"a".hex()
    path.write_bytes(path.read_bytes()[:-1])
    assert store.get(b"a") is None
    assert not path.exists()
