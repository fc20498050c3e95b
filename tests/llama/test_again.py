"""A model that is loaded again goes on with what was learned of its vocabulary."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from worker.budget import UNBOUNDED
from worker.errors import BackendError, UnavailableError
from worker.grammar.constraint import Constraint
from worker.llama import backend as module
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.guides.guides import Guides
from worker.llama.weights import LoadOptions, Weights

CPU = LoadOptions(n_gpu_layers=0, devices=())
CONTEXT = ContextOptions(num_cells=512, num_slots=2, threads=1, threads_batch=1)


def load(path: Path, guides: Guides | None = None) -> LlamaBackend:
    return LlamaBackend(Weights(path, CPU), CONTEXT, guides=guides)


def words(backend: LlamaBackend) -> list[int]:
    return backend.vocab.tokenize("Once upon a time", add_special=True, parse_special=False)


def test_what_was_learned_stays(tiny: Path) -> None:
    """The vocabulary says that it is away in between; what was compiled is not compiled again."""
    with load(tiny) as first:
        expected, guides = words(first), first.guides
        constraint = Constraint(kind="regex", text="(ab|c)+")
        first.prepare(constraint, UNBOUNDED)
        matcher = guides.matcher_of(constraint)
    with pytest.raises(UnavailableError):
        words(first)
    for _ in range(2):
        with load(tiny, guides) as again:
            assert again.vocab is first.vocab
            assert words(again) == words(first) == expected
            assert again.guides.matcher_of(constraint) is matcher
    with pytest.raises(UnavailableError):
        words(first)


def test_a_load_that_fails_leaves_the_vocabulary_away(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next one that succeeds brings it back."""
    with load(tiny) as first:
        expected, guides = words(first), first.guides

    def fail(*_: object) -> None:
        raise BackendError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(module, "Context", fail)
        with pytest.raises(BackendError):
            load(tiny, guides)
    with pytest.raises(UnavailableError):
        words(first)
    with load(tiny, guides) as again:
        assert words(again) == expected


def test_nothing_of_it_is_left(tiny: Path) -> None:
    """A closed one goes with its last reference: `gc.freeze` keeps cycles of the start for ever."""
    gc.disable()
    try:
        backend = load(tiny)
        backend.warm_up()
        parts = [weakref.ref(part) for part in (backend, backend.context, backend.weights)]
        guides = backend.guides
        backend.close()
        del backend
        assert [part() for part in parts] == [None] * 3
        assert guides.vocab.size
    finally:
        gc.enable()
