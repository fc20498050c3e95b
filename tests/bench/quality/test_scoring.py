"""Figures over the windows of a text."""

from __future__ import annotations

import msgspec
import numpy as np

from worker.bench.quality.scoring import WindowScores, summarise


def window(seed: int) -> WindowScores:
    kld, sampling, nll, reference, same = np.random.default_rng(seed).random((5, 16))
    return WindowScores(kld=kld, sampling=sampling, nll=nll, nll_reference=reference, same=same)


def test_what_one_window_cannot_say_is_null() -> None:
    """The error by windows has no value where there is one window, as the table leaves it open."""
    alone = msgspec.to_builtins(summarise([window(1)], 16))
    assert alone["kld_mean_error_windows"] is None
    assert msgspec.json.decode(msgspec.json.encode(alone))["kld_mean_error_windows"] is None
    assert all(
        value is not None for name, value in alone.items() if name != "kld_mean_error_windows"
    )
    assert summarise([window(1), window(2)], 16).kld_mean_error_windows
