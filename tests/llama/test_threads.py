"""The number of compute threads is measured."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.threads import fastest_threads
from worker.llama.weights import LoadOptions


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        ({8: 0.8, 4: 0.5, 2: 0.4, 1: 0.7}, 2),
        ({8: 0.8, 4: 0.79, 2: 0.1, 1: 0.1}, 8),  # no gain worth having: no further tried
        ({8: 0.8, 4: 0.4, 2: 0.2, 1: 0.1}, 1),
        ({8: 0.1, 4: 0.2, 2: 0.4, 1: 0.8}, 8),
    ],
)
def test_halves_are_tried(seconds: dict[int, float], best: int) -> None:
    """Fewer threads are tried as long as fewer are clearly faster."""
    assert fastest_threads(8, seconds.__getitem__) == best


def test_a_slow_model_is_not_measured_for_long() -> None:
    """When the first measurement has used up the time nothing else is tried."""
    tried: list[int] = []

    def slow(threads: int) -> float:
        tried.append(threads)
        time.sleep(0.25)
        return 1 / threads

    assert fastest_threads(4, slow) == 4
    assert tried == [4, 4]


def test_a_context_is_set_to_them(tiny: Path) -> None:
    """What warming up chose is within the limit and computes the same tokens."""
    options = ContextOptions(num_cells=512, num_slots=4, threads=2, threads_batch=2)
    with LlamaBackend(tiny, LoadOptions(n_gpu_layers=0), options) as backend:
        backend.warm_up(choose_threads=True)
        assert backend.context.threads in (1, 2)
        assert backend.context.threads_batch in (1, 2)
        assert backend.spin.threads == backend.context.threads
        assert backend.batch.size == 0
        assert backend.context.span(0) == (-1, -1)
