"""GBNF in llama.cpp: what passed our checks is harmless there."""

from __future__ import annotations

import time
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.grammars import BAD, GOOD
from tests.support.models.ggufs import write_llama
from tests.support.programs.grammar_child import GrammarChild, grammar_child
from worker.engine.engine import Engine
from worker.engine.request import Request
from worker.engine.sampling import SamplingParams
from worker.errors import RequestError
from worker.grammar.check import check_gbnf
from worker.grammar.constraint import Constraint
from worker.llama.backend import LlamaBackend
from worker.llama.context_options import ContextOptions
from worker.llama.guides import gbnf
from worker.llama.weights import LoadOptions


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Generator[GrammarChild]:
    """A child with a tiny vocabulary."""
    path = write_llama(tmp_path_factory.mktemp("grammar") / "tiny.gguf")
    with grammar_child(path) as child:
        yield child


@pytest.mark.parametrize("name", GOOD)
def test_good_grammar(name: str, child: GrammarChild) -> None:
    """What users send, llama.cpp takes."""
    assert child.answer(GOOD[name]) == "taken"


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Generator[LlamaBackend]:
    """A tiny model."""
    path = write_llama(tmp_path_factory.mktemp("backend") / "tiny.gguf")
    options = ContextOptions(num_cells=256, num_slots=2)
    with LlamaBackend.open(path, LoadOptions(n_gpu_layers=0), options) as backend:
        yield backend


def outcome(backend: LlamaBackend, grammar: str) -> tuple[int, RequestError | None]:
    """How many tokens a request with this grammar gets, and its error."""
    engine = Engine(backend, time.monotonic)
    sampling = SamplingParams(constraint=Constraint(kind="gbnf", text=grammar), temperature=0)
    request = Request(id="a", prompt=(5,), max_tokens=4, sampling=sampling)
    engine.check(request)
    try:
        engine.add(request)
        deltas = [delta for _ in range(10) for delta in engine.step()]
    except RequestError as error:
        return 0, error
    errors = [delta.error for delta in deltas if isinstance(delta.error, RequestError)]
    return sum(delta.token is not None for delta in deltas), errors[0] if errors else None


def test_ambiguous_in_the_engine(backend: LlamaBackend) -> None:
    """The ambiguous grammar ends with an error in a moment, and the next request is served."""
    tokens, error = outcome(backend, BAD["ambiguous"])
    assert tokens == 0
    assert error is not None
    assert error.param == "grammar"
    assert outcome(backend, "root ::= [a-z]+") == (4, None)


def test_budget(backend: LlamaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that takes longer than its budget under a grammar ends its sequence only."""
    monkeypatch.setattr(gbnf, "_BUDGET_S", -1)
    nested = "root ::= !<[5]> root | <[5]>"
    tokens, error = outcome(backend, nested)
    assert tokens == 0
    assert error is not None
    assert error.param == "grammar"
    monkeypatch.undo()
    assert outcome(backend, nested) == (4, None)


_ITEMS = st.recursive(
    st.sampled_from(['"a"', '""', "[a-c ]", "[^a]", ".", "r", "s", '"ab"', "[e-z ]"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,3}", "{1,}"])).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: f"({' '.join(items)})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda items: f"({' | '.join(items)})"),
    ),
    max_leaves=8,
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.tuples(_ITEMS, _ITEMS, _ITEMS))
def test_what_passes_is_harmless(child: GrammarChild, bodies: tuple[str, str, str]) -> None:
    """Any grammar that passes is parsed and applied by llama.cpp in a moment."""
    text = "\n".join(
        f"{name} ::= {body}" for name, body in zip(("root", "r", "s"), bodies, strict=True)
    )
    try:
        check_gbnf(text, "grammar")
    except RequestError:
        return
    assert child.answer(text) in ("taken", "refused"), text
