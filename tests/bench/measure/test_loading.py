"""Cold and warm loads, and whether cold was cold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from worker.bench.measure import loading
from worker.bench.measure.loading import drop, measure_loading


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of a few megabytes."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(4 << 20))
    return path


def test_each_load_is_timed_and_told(file: Path) -> None:
    """As many cold and warm loads as asked for, with a tick after each."""
    loads: list[bool] = []
    ticks: list[int] = []
    found = measure_loading([file], lambda: loads.append(True), 3, lambda: ticks.append(len(loads)))
    assert found.warm.count == 3
    assert (found.cold is None) == (not found.dropped)
    assert ticks == list(range(1, len(loads) + 1))
    assert len(loads) in (3, 4, 6)  # without cold ones, with one that was none, with all


def test_what_was_dropped_is_told(file: Path) -> None:
    """A share of the probed places, or that it cannot be known; the content stays."""
    before = file.read_bytes()
    share = drop([file])
    assert share is None or 0 <= share <= 1
    assert file.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="no posix_fadvise here")
def test_a_cold_load_that_was_none_is_not_called_cold(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system keeps its copy, or does not say, there is no cold figure."""

    def kept(_fd: int, _size: int) -> float:
        return 0.0

    monkeypatch.setattr(loading, "_absent", kept)
    assert measure_loading([file], lambda: None, 2, lambda: None).cold is None
    monkeypatch.delattr(os, "posix_fadvise")
    found = measure_loading([file], lambda: None, 2, lambda: None)
    assert found.cold is None
    assert found.dropped is None
