"""Large memory is asked for in large pages, before weights are read into it."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from tests.support.models import ggufs
from worker.llama.process import large_pages
from worker.llama.weights import LoadOptions, Weights

_LARGE = 64 << 20
_SMAPS = Path("/proc/self/smaps")

pytestmark = pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no large pages here"
)


def asked_for() -> int:
    """Bytes of this process that were asked for in large pages."""
    total = size = 0
    for line in _SMAPS.read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name == "Size":
            size = int(value.split()[0]) * 1024
        elif name == "VmFlags":
            total += size * ("hg" in value.split())
    return total


def test_what_is_large() -> None:
    """Anonymous memory that nothing has filled yet."""
    before = asked_for()
    with mmap.mmap(-1, _LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        large_pages.ask()
        assert asked_for() >= before + _LARGE


def test_weights(tmp_path: Path) -> None:
    """While they are loaded their memory is so, and none of it once they are freed."""
    path = ggufs.write_llama(tmp_path / "m.gguf", layers=6, embedding=512, feed_forward=2048)
    size = path.stat().st_size
    assert size > _LARGE
    before = asked_for()
    with Weights(path, LoadOptions(n_gpu_layers=0, mmap=False)):
        assert asked_for() >= before + size // 2
    assert asked_for() < before + size // 2
