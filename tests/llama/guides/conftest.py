"""One vocabulary of 1,201 tokens, of one to three letters, for all tests of guides."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support.guided import Writer
from tests.support.models.ggufs import write_llama
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights


@pytest.fixture(scope="session")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Generator[Writer]:
    path = write_llama(tmp_path_factory.mktemp("guides") / "wide.gguf", vocab_size=1201)
    with Weights(path, LoadOptions(n_gpu_layers=0, devices=())) as weights:
        yield Writer(Vocab(weights.handle, 512))
