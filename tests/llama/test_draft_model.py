"""A draft model under samplers of every kind: seeds, grammars, logprobs, penalties."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.models import ggufs
from tests.support.sessions import load
from worker.engine.engine import Engine
from worker.engine.request import Request, SamplingParams
from worker.engine.sequence import Delta
from worker.grammar.constraint import Constraint
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.draft.model import DraftModel
from worker.llama.weights import LoadOptions

PROMPTS = [tuple(range(5, 5 + length)) for length in (4, 40, 9)]
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0, ignore_eos=True),
    "seeded": SamplingParams(temperature=1, top_k=40, seed=7, ignore_eos=True),
    "sharp": SamplingParams(temperature=0.2, top_p=0.9, min_p=0.01, seed=3, ignore_eos=True),
    "grammar": SamplingParams(
        temperature=0.5, seed=5, constraint=Constraint(kind="gbnf", text='root ::= ("ab" | "c")+')
    ),
    "regex": SamplingParams(
        temperature=0.5, seed=5, constraint=Constraint(kind="regex", text="(ab|c)+")
    ),
    "penalties": SamplingParams(
        temperature=0.3, repeat_penalty=1.3, presence_penalty=0.5, seed=9, ignore_eos=True
    ),
}


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
    return DraftModel(path, LoadOptions(n_gpu_layers=0), options, beside=backend.context)


def outcome(
    backend: LlamaBackend, sampling: SamplingParams, draft: DraftModel | None
) -> tuple[dict[str, list[Delta]], Engine]:
    """Deltas with a token, of three requests side by side, one of which leaves in the middle."""
    ticks = itertools.count()
    for slot in range(backend.num_slots):
        backend.drop(slot)
    if draft is not None:
        draft.context.clear()
    engine = Engine(
        backend, lambda: next(ticks) * 1e-4, drafting=draft is not None, draft_model=draft
    )
    for number, prompt in enumerate(PROMPTS):
        engine.add(
            Request(
                id=str(number), prompt=prompt, max_tokens=40, sampling=sampling, logprobs=number
            )
        )
    deltas: dict[str, list[Delta]] = {}
    for step in range(300):
        if step == 12:
            engine.abort("2")
        for delta in engine.step():
            deltas.setdefault(delta.id, []).append(delta)
        engine.scheduler.check_integrity()
        if engine.is_idle:
            break
    assert engine.is_idle
    return deltas, engine


@pytest.mark.parametrize("kind", SAMPLINGS)
def test_the_same_text(backend: LlamaBackend, draft: DraftModel, kind: str) -> None:
    """Tokens, texts and logprobs are those without a draft model, right or wrong as it is."""
    plain, _ = outcome(backend, SAMPLINGS[kind], None)
    drafted, engine = outcome(backend, SAMPLINGS[kind], draft)
    for name in ("0", "1"):
        assert [d.token for d in drafted[name]] == [d.token for d in plain[name]]
        assert "".join(d.text for d in drafted[name]) == "".join(d.text for d in plain[name])
        for one, other in zip(drafted[name], plain[name], strict=True):
            assert one.logprob is not None
            assert other.logprob is not None
            assert one.logprob.logprob == pytest.approx(other.logprob.logprob, abs=1e-3)
    assert engine.snapshot.stats.drafted_tokens > 0


def test_it_computes_with_the_same_threads(backend: LlamaBackend, draft: DraftModel) -> None:
    """Where the model's threads have changed, the draft's have at its next batch."""
    before = backend.context.threads, backend.context.threads_batch
    backend.context.set_threads(2, 3)
    draft.context.clear()
    draft.batch.clear()
    draft.batch.add_one(5, 0, 0)
    draft.decode()
    draft.context.clear()
    assert (draft.context.threads, draft.context.threads_batch) == (2, 3)
    backend.context.set_threads(*before)


def test_a_model_with_one_state_cannot_draft(tmp_path: Path, backend: LlamaBackend) -> None:
    """A recurrent model is refused when it is loaded."""
    from tests.support.models.architectures import WRITERS
    from worker.errors import ModelLoadError

    with pytest.raises(ModelLoadError, match="cannot guess tokens"):
        opened(WRITERS["mamba"](tmp_path / "mamba.gguf"), backend)
