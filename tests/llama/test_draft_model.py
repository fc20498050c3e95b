"""A draft model under samplers of every kind: seeds, grammars, logprobs, penalties."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.guessing import SAMPLINGS, guesses_change_nothing
from tests.support.models import ggufs
from tests.support.sessions import load
from worker.engine.drafts.guesser import Drafting
from worker.llama.backend import LlamaBackend
from worker.llama.companion import DraftModel
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Generator[LlamaBackend]:
    path = ggufs.write_llama(tmp_path_factory.mktemp("pair") / "target.gguf")
    with load(path) as backend:
        yield backend


@pytest.fixture(scope="module", params=[0, 1], ids=["right", "wrong"])
def draft(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    backend: LlamaBackend,
) -> Generator[DraftModel]:
    """The same model, or one with other weights and fewer layers."""
    options = {"seed": 1, "layers": 1} if request.param else {}
    path = ggufs.write_llama(tmp_path_factory.mktemp("pair") / "draft.gguf", **options)
    with opened(path, backend) as draft:
        yield draft


def opened(path: Path, backend: LlamaBackend) -> DraftModel:
    options = ContextOptions(num_cells=1024, num_slots=4)
    return DraftModel(path, LoadOptions(n_gpu_layers=0), options)


@pytest.mark.parametrize("kind", SAMPLINGS)
def test_the_same_text(backend: LlamaBackend, draft: DraftModel, kind: str) -> None:
    """Tokens, texts and logprobs are those without a draft model, right or wrong as it is."""
    draft.context.clear()
    guesses_change_nothing(backend, SAMPLINGS[kind], Drafting(looks_up=True, model=draft))


def test_a_model_with_one_state_cannot_draft(tmp_path: Path, backend: LlamaBackend) -> None:
    """A recurrent model is refused when it is loaded."""
    from tests.support.models.architectures import WRITERS
    from worker.errors import ModelLoadError

    with pytest.raises(ModelLoadError, match="cannot guess tokens"):
        opened(WRITERS["mamba"](tmp_path / "mamba.gguf"), backend)
