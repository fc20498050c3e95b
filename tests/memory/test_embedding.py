"""What the context for vectors takes, planned and as llama.cpp allocates it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models import ggufs
from tests.support.models.architectures import write_gemma3
from tests.support.models.embedders import ARCHITECTURES, CONTEXT, Embedder
from tests.support.models.ggufs import u32
from worker.errors import UsageError
from worker.lifecycle.buffers import asking
from worker.lifecycle.loading import open_backend
from worker.lifecycle.prepared import load_weights, prepare
from worker.memory.contexts import vector_bytes
from worker.memory.embedding import embedding_shape
from worker.memory.estimate import estimator
from worker.settings import Settings

# The default context of a decoder is of this machine's memory.
DECODER = Settings(pooling="mean", ctx_size=2048, threads=1)


PRINTED = 3 * 10_486  # buffers in MiB with two decimals


def compare(path: Path, settings: Settings, most: float, least: float = 0.95) -> None:
    """The answer is what is allocated; the estimate is between so many times of it."""
    prepared = prepare(path, settings)
    shape = embedding_shape(prepared.config, settings, prepared.plan.num_cells)
    assert shape is not None
    planned = vector_bytes(estimator(prepared.config), settings, shape)
    with asking(prepared.config) as ask:
        asked = vector_bytes(ask, settings, shape)
    weights = load_weights(path, settings, prepared)
    with open_backend(weights, settings, prepared) as backend:
        assert backend.embedder is not None
        found = [context.residency for context in backend.embedder.contexts]
    allocated = sum(n for each in found for _, n in (*each.compute_buffers, *each.kv_buffers))
    assert sum(asked) == pytest.approx(allocated, abs=PRINTED)
    assert allocated * least < sum(planned) < allocated * most


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_encoders(architecture: str, tmp_path: Path) -> None:
    """Of each kind. These are so small that masks are most of it, which llama.cpp frees early."""
    path = Embedder(architecture).write(tmp_path / "model.gguf")
    # T5 adds a number for each head and distance, which no key says.
    compare(path, Settings(threads=1), 2.6, 0.25 if architecture == "t5encoder" else 0.95)


def test_decoders(tmp_path: Path) -> None:
    """Beside the context that writes."""
    compare(ggufs.write_llama(tmp_path / "llama.gguf", context=2048), DECODER, 1.35)
    compare(write_gemma3(tmp_path / "gemma.gguf"), DECODER, 1.35)


def test_the_rows_of_a_step_are_those_of_the_longest_text(tmp_path: Path) -> None:
    """Of one that must be read whole; --ctx-size says how long that is."""
    path = Embedder("nomic-bert").write(tmp_path / "long.gguf", context_length=u32(8192))
    for asked, length in ((None, 2048), (4096, 4096), (100_000, 8192)):
        settings = Settings(threads=1, ctx_size=asked)
        prepared = prepare(path, settings)
        shape = embedding_shape(prepared.config, settings, prepared.plan.num_cells)
        assert shape is not None
        assert (shape.length, shape.rows, shape.splits) == (length, length, False)
        assert shape.step_rows == settings.batch_size
    short = Embedder("bert").write(tmp_path / "short.gguf")
    shape = embedding_shape(prepare(short, Settings()).config, Settings(), 512)
    assert shape is not None
    assert (shape.length, shape.rows) == (CONTEXT, 512)


@pytest.mark.parametrize(
    "given", [{"draft": "ngram"}, {"cache_ram": 5}, {"cache_dir": "."}, {"draft_model": "x"}]
)
def test_options_for_text_are_refused(given: dict[str, object], tmp_path: Path) -> None:
    """Nothing is accepted and ignored."""
    path = Embedder("bert").write(tmp_path / "bert.gguf")
    with pytest.raises(UsageError, match="is for text"):
        prepare(path, Settings(**given))  # pyright: ignore[reportArgumentType]
