"""What is chosen of logits that are no numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from worker.errors import BackendError
from worker.llama.backend import LlamaBackend


class Likeliest:
    """Implements what is used of a sampler."""

    def sample(self, logits: np.ndarray, _: Any) -> int:
        return int(np.argmax(logits))


def test_no_token_of_nan() -> None:
    """An error, not any token; the next row is chosen from as before."""
    rows = [np.full(8, np.nan, np.float32), np.zeros(8, np.float32)]
    backend: Any = object.__new__(LlamaBackend)
    backend.context = SimpleNamespace(logits=rows.__getitem__, handle=None)
    with pytest.raises(BackendError, match="no numbers"):
        cast("LlamaBackend", backend).sample(0, Likeliest())
    assert backend.sample(1, Likeliest()) == 0
