"""What is kept between runs: found again, never mistaken, within its bound."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from worker.bench.run.cache import BenchCache, key_of
from worker.errors import UsageError


@pytest.fixture
def cache(tmp_path: Path) -> BenchCache:
    """An empty one with room for 1,000 bytes."""
    return BenchCache(tmp_path / "cache", 1000)


def finished(shares: Generator[float, None, str]) -> tuple[str, int]:
    """What a generator returned, and how often it told how far it is."""
    told = 0
    while True:
        try:
            next(shares)
        except StopIteration as end:
            return str(end.value), told
        told += 1


def test_a_hash_is_read_once(cache: BenchCache, tmp_path: Path) -> None:
    """And again when the file has changed."""
    file = tmp_path / "file"
    file.write_bytes(b"one")
    assert finished(cache.sha256(file)) == (hashlib.sha256(b"one").hexdigest(), 1)
    assert finished(cache.sha256(file)) == (hashlib.sha256(b"one").hexdigest(), 0)
    file.write_bytes(b"other")
    assert finished(cache.sha256(file)) == (hashlib.sha256(b"other").hexdigest(), 1)


def test_a_measurement_is_found_under_its_key(cache: BenchCache) -> None:
    """Not under another key, not as another kind, not when too old."""
    assert key_of("load", {"a": 1, "b": 2}) == key_of("load", {"b": 2, "a": 1})
    key, other = key_of("load", 1), key_of("load", 2)
    assert key != other
    import time

    now = time.time()
    cache.save(key, {"seconds": 3}, now - 60)
    assert cache.load(key, dict[str, int], 120) == {"seconds": 3}
    assert cache.load(key, dict[str, int], 30) is None
    assert cache.load(key, list[int], 120) is None
    assert cache.load(other, dict[str, int], 120) is None
    cache.forget(key)
    assert cache.load(key, dict[str, int], 120) is None


def test_a_half_written_measurement_is_none(cache: BenchCache) -> None:
    """A file that was cut short is as good as not there."""
    cache.save("key", {"seconds": 3}, 1e12)
    (file,) = (cache.folder / "stages").iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    assert cache.load("key", dict[str, int], float("inf")) is None


def filled(cache: BenchCache) -> list[Path]:
    """Two files and a folder of rows of 300 bytes each, the first used longest ago."""
    entries: list[Path] = []
    for age, name in ((300, "A"), (200, "B")):
        path = cache.quant("f" * 64, "1.0", Path("model.gguf"), name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(300))
        entries.append(path)
        os.utime(path, (1e9 - age, 1e9 - age))
    rows = cache.reference("key")
    rows.mkdir(parents=True)
    (rows / "rows").write_bytes(bytes(300))
    os.utime(rows, (1e9 - 100, 1e9 - 100))
    return [*entries, rows]


def test_the_oldest_goes_first(cache: BenchCache) -> None:
    """Only as much as is needed for what comes, and never what is in use."""
    a, b, rows = filled(cache)
    cache.make_room(100)
    assert (a.exists(), b.exists(), rows.exists()) == (True, True, True)
    cache.make_room(200)
    assert (a.exists(), b.exists(), rows.exists()) == (False, True, True)
    cache.make_room(900, keep=frozenset([b]))
    assert (b.exists(), rows.exists()) == (True, False)


def test_use_makes_young(cache: BenchCache) -> None:
    """What was just used stays when something must go."""
    a, b, rows = filled(cache)
    cache.use(a)
    cache.make_room(400)
    assert (a.exists(), b.exists(), rows.exists()) == (True, False, True)


def test_clean_removes_all_of_it(cache: BenchCache) -> None:
    """And says how much that was."""
    filled(cache)
    cache.save("key", 1, 1.0)
    with cache.lock():
        assert cache.clean() > 900
    assert {path.name for path in cache.folder.iterdir()} == {"lock"}


def test_two_runs_do_not_measure_at_once(cache: BenchCache) -> None:
    """The second is told to wait; when the first is done it may."""
    with (
        cache.lock(),
        pytest.raises(UsageError, match="Another `worker bench`") as caught,
        cache.lock(),
    ):
        pass
    assert caught.value.code == "BUSY"
    with cache.lock():
        pass


def test_a_folder_that_cannot_be_written_to_says_what_to_do(tmp_path: Path) -> None:
    """Before anything is measured."""
    (tmp_path / "file").touch()
    with (
        pytest.raises(UsageError, match=r"cannot be written to: .* Set XDG_CACHE_HOME"),
        BenchCache(tmp_path / "file" / "cache").lock(),
    ):
        raise AssertionError("not reached")


def test_garbage_in_the_cache_is_nothing(cache: BenchCache) -> None:
    """Whatever lies where a measurement should."""
    cache.save("key", 1, time.time())
    (stored,) = cache.folder.glob("stages/*")
    for garbage in (b"", b"\xff\x00", b"[" * 100_000, b'{"measured_at": 1}', b"null"):
        stored.write_bytes(garbage)
        assert cache.load("key", int, math.inf) is None
