"""Vectors of pictures are bounded over all requests that hold them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.support.models.projectors import png, write_llava
from worker.errors import QueueFullError
from worker.lifecycle.media import MediaReader
from worker.lifecycle.prepared import prepare
from worker.settings import Settings

pytestmark = pytest.mark.mtmd


def test_vectors_are_bounded_together(tmp_path: Path) -> None:
    """Twice the cells of the context; what is let go may be had again."""
    model, _ = write_llava(tmp_path)
    settings = Settings(model=str(model), ctx_size=256)
    with contextlib.closing(MediaReader(settings, prepare(model, settings))) as reader:
        reader.wait(16)

        def read(seed: int) -> Any:
            data = png(seed=seed)
            assert reader.count(reader.digest(data), data, "image") == 16
            return reader.read(reader.digest(data), data, "image")

        held = [read(seed) for seed in range(2 * 256 // 16)]
        with pytest.raises(QueueFullError):
            read(99)
        del held[0]
        held.append(read(99))
