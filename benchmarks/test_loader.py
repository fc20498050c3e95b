"""How long the typed config of a large vocabulary takes, beside gguf.GGUFReader in the same run.

    pytest benchmarks/test_loader.py --benchmark-only

The goals: 60 ms for 152k tokens, 150 ms for 262k, and 100 times faster than GGUFReader, which
only reads, while our time includes all checks.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import gguf
import pytest

from worker.model.config import load_config

VOCABS = (Path(__file__).parents[1] / "../shared/vocabs").resolve()
FILES = {"152k": VOCABS / "ggml-vocab-qwen2.gguf", "262k": VOCABS / "ggml-vocab-gemma-4.gguf"}

pytestmark = pytest.mark.skipif(
    not all(path.exists() for path in FILES.values()), reason="../shared/vocabs is missing"
)


@pytest.mark.parametrize("size", FILES)
def test_typed_config(benchmark: Any, size: str) -> None:
    """The typed config, checks included."""
    benchmark.group = size
    config = benchmark.pedantic(
        load_config, (FILES[size],), {"purpose": "inspect"}, rounds=20, warmup_rounds=2
    )
    assert config.vocab_size > 150_000


@pytest.mark.parametrize("size", FILES)
def test_gguf_reader(benchmark: Any, size: str) -> None:
    """gguf.GGUFReader, which makes no config and checks nothing."""
    benchmark.group = size
    gc.collect()
    reader = benchmark.pedantic(gguf.GGUFReader, (FILES[size],), rounds=1)
    assert "tokenizer.ggml.tokens" in reader.fields
