"""Steps of few rows and of many give the same vectors, each with the attention that suits it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.models.embedders import Embedder
from worker.lifecycle.loading import load_backend
from worker.lifecycle.prepared import prepare
from worker.llama.backend import LlamaBackend
from worker.settings import Settings

TEXT = np.arange(5, 17, dtype=np.int32)


def opened(tmp_path: Path, **settings: object) -> LlamaBackend:
    path = Embedder("bert").write(tmp_path / "bert.gguf")
    asked = Settings(threads=1, **settings)  # pyright: ignore[reportArgumentType]
    return load_backend(path, asked, prepare(path, asked))


def first_rows(backend: LlamaBackend, rows: int) -> np.ndarray:
    """Hidden states of TEXT in a step of so many rows, the others of texts of one token."""
    embedder = backend.embedder
    assert embedder is not None
    embedder.batch.clear()
    embedder.batch.add(TEXT, 0, 0)
    for slot in range(1, 1 + rows - len(TEXT)):
        embedder.batch.add_one(7, 0, slot)
    embedder.batch.outputs[:rows] = 1
    made = embedder.compute()
    assert len(made) == embedder.batch.size == rows
    embedder.forget(0)
    return made[: len(TEXT)].copy()


def test_a_text_alone_is_what_it_is_in_a_step(tmp_path: Path) -> None:
    """Below, at and above each number of rows where another kernel computes."""
    with opened(tmp_path) as backend:
        alone = first_rows(backend, len(TEXT))
        for rows in (13, 32, 47, 48, 49, 56, 63, 64, 65, 70):
            np.testing.assert_allclose(first_rows(backend, rows), alone, atol=5e-3)


def test_few_rows_have_a_context_with_standard_attention(tmp_path: Path) -> None:
    """It has room for 48 of them; the options say when there is none."""
    with opened(tmp_path) as backend:
        assert backend.embedder is not None
        large, short = list(backend.embedder.contexts)
        assert (large.options.flash_attn, short.options.flash_attn) == ("auto", "off")
        assert short.rows_together == 48
    for chosen in ("on", "off"):
        with opened(tmp_path, flash_attn=chosen) as backend:
            assert backend.embedder is not None
            assert len(backend.embedder.contexts) == 1


def test_rows_of_a_step_go_by_the_threads(tmp_path: Path) -> None:
    """64 for each thread, at least 128 and at most what the user says."""
    for threads, given, rows in ((1, 512, 128), (2, 512, 128), (4, 512, 256), (4, 96, 96)):
        path = Embedder("bert").write(tmp_path / "bert.gguf")
        settings = Settings(threads=threads, batch_size=given)
        with load_backend(path, settings, prepare(path, settings)) as backend:
            assert backend.embedder is not None
            assert backend.embedder.step_rows == rows
