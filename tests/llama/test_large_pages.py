"""Memory that is there as a whole moves into large pages; what is there in part stays so."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.llama.process import memory

_SIZE, _FILLED, _STRETCH = 64 << 20, 40 << 20, 8 << 20
_ADVICE = memory._COLLAPSE  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def filled() -> Iterator[mmap.mmap]:
    """Anonymous memory of which the first _FILLED bytes are there."""
    block = mmap.mmap(-1, _SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block[:_FILLED] = b"x" * _FILLED
    yield block
    block.close()


def in_large_pages() -> int:
    """Bytes of this process that lie in large pages."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * int(text.split("AnonHugePages:")[1].split()[0])


def address_of(block: mmap.mmap) -> int:
    place = ctypes.c_char.from_buffer(block)
    address = ctypes.addressof(place)
    del place
    return address


def mine(block: mmap.mmap) -> list[range]:
    """The stretches that lie in it."""
    start = address_of(block)
    return [
        stretch
        for stretch in memory.stretches(_STRETCH)
        if start <= stretch.start and stretch[-1] + stretch.step <= start + _SIZE
    ]


def test_what_is_whole_is_moved(filled: mmap.mmap) -> None:
    """All of it, stretch by stretch, and nothing is filled that was not there."""
    stretches = mine(filled)
    if not stretches:
        pytest.skip("no large pages here, or they are switched off")
    before, first = in_large_pages(), stretches[0]
    libc = ctypes.CDLL(None)
    if libc.madvise(ctypes.c_void_p(first.start), ctypes.c_size_t(first.step), _ADVICE):
        pytest.skip("a kernel that moves nothing (before Linux 6.1), or no large page is free")
    moved = sum(memory.collapse(stretch) for stretch in stretches)
    assert first.step <= moved <= _FILLED  # less where no more are free
    assert in_large_pages() >= before + moved
    assert filled[:_FILLED] == b"x" * _FILLED


def test_stretches_are_as_long_as_asked(filled: mmap.mmap) -> None:
    """None reaches over _STRETCH, and together they are all large pages of the memory."""
    stretches = mine(filled)
    assert all(len(stretch) * stretch.step <= _STRETCH for stretch in stretches)
    places = [address for stretch in stretches for address in stretch]
    assert places == sorted(set(places))
    if stretches:
        assert len(places) >= _SIZE // stretches[0].step - 1


def test_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who switched large pages off gets none; nor does a system without them."""
    monkeypatch.setattr(memory, "_SETTINGS", tmp_path)
    assert memory.stretches(_STRETCH) == []
    (tmp_path / "enabled").write_text("always madvise [never]\n")
    (tmp_path / "hpage_pmd_size").write_text("2097152\n")
    assert memory.stretches(_STRETCH) == []
