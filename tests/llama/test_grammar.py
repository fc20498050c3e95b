"""Grammars and JSON schemas in llama.cpp: what passed our checks is harmless there."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from typing import Any

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
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.grammar import grammar_of
from worker.llama.sampling import sampler
from worker.llama.weights import LoadOptions

BAD_SCHEMAS: dict[str, Any] = {
    "nested counts": {"type": "string", "pattern": "^(a{0,1000}){0,1000}$"},
    "options": {"type": "string", "pattern": "^((a?){50}){50}$"},
    "stars": {"type": "string", "pattern": "^" + "(a*)*" * 1000 + "$"},
    "a billion": {"items": {"pattern": "^a{1000000000}$"}},
    "lengths": {"type": "string", "minLength": 10, "maxLength": 2},
    "items": {"type": "array", "minItems": 10, "maxItems": 2},
    "itself": {"$ref": "#"},
    "allOf itself": {"allOf": [{"$ref": "#"}]},
    "anyOf itself": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    "minimum": {"type": "integer", "minimum": 1},
    "multipleOf": {"type": "number", "multipleOf": 2},
    "uniqueItems": {"type": "array", "uniqueItems": True},
    "contains": {"type": "array", "contains": {}},
    "patternProperties": {"type": "object", "patternProperties": {}},
    "minProperties": {"type": "object", "minProperties": 1},
    "not": {"not": {}},
    "if": {"type": "string", "if": {}, "then": {}},
    "beside anyOf": {"anyOf": [{"type": "string"}], "required": ["a"]},
    "required": {"type": "object", "required": ["a"]},
}
NODE = {
    "type": "object",
    "properties": {
        "v": {"type": "integer"},
        "next": {"anyOf": [{"$ref": "#/$defs/my_node"}, {"type": "null"}]},
    },
}
GOOD_SCHEMAS: dict[str, Any] = {
    "options": {"properties": {f"p{i}": {"type": "string"} for i in range(30)}},
    "array": {"type": "array", "items": {"type": "number"}, "minItems": 5, "maxItems": 50},
    "enum": {"enum": [f"value {i}" for i in range(200)]},
    "escapes": {"enum": ['a"b', "\\", "\t\n", "é"]},
    "string": {"type": "string", "minLength": 10, "maxLength": 200},
    "list": {"$ref": "#/$defs/my_node", "$defs": {"my_node": NODE}},
    "tree": {"type": "object", "properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}}},
    "formats": {"properties": {k: {"type": "string", "format": k} for k in ("uuid", "date")}},
    "anything": {"title": "x"},
    "map": {"type": "object", "additionalProperties": True},
    "nullable": {"type": ["string", "null"], "maxLength": 5},
    "pattern": {"type": "string", "pattern": "^[a-z]{1,50}-(x|y)+$"},
    "annotated": {"type": "boolean", "title": "t", "default": True, "examples": [1]},
    "allOf": {"allOf": [{"type": "object", "properties": {"a": {}}, "required": ["a"]}]},
}


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Generator[GrammarChild]:
    """A child with a tiny vocabulary."""
    path = write_llama(tmp_path_factory.mktemp("grammar") / "tiny.gguf")
    with grammar_child(path) as child:
        yield child


@pytest.mark.parametrize("name", BAD_SCHEMAS)
def test_bad_schema(name: str) -> None:
    """A schema that explodes, or that a grammar cannot follow, is refused at once."""
    with pytest.raises(RequestError) as caught:
        grammar_of(BAD_SCHEMAS[name], "json_schema")
    assert caught.value.param == "json_schema"


@pytest.mark.parametrize("name", GOOD)
def test_good_grammar(name: str, child: GrammarChild) -> None:
    """What users send, llama.cpp takes."""
    assert child.answer(GOOD[name]) == "taken"


@pytest.mark.parametrize("name", GOOD_SCHEMAS)
def test_good_schema(name: str, child: GrammarChild) -> None:
    """Ordinary schemas become grammars that llama.cpp takes."""
    assert child.answer(grammar_of(GOOD_SCHEMAS[name], "json_schema")) == "taken"


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
    sampling = SamplingParams(grammar=grammar, temperature=0)
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


def test_strings_hold_no_line_breaks(backend: LlamaBackend) -> None:
    """A model that wants nothing but line breaks writes JSON that strict readers take."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "maxLength": 4}},
        "required": ["a"],
    }
    (line_break,) = backend.vocab.tokenize("\n", add_special=False, parse_special=False)[-1:]
    assert backend.pieces[line_break] == b"\n"
    engine = Engine(backend, time.monotonic)
    sampling = SamplingParams(
        grammar=grammar_of(schema, "schema"), temperature=0, logit_bias=((line_break, 100.0),)
    )
    engine.add(Request(id="a", prompt=(5,), max_tokens=200, sampling=sampling))
    text = ""
    while not engine.is_idle:
        text += "".join(delta.text for delta in engine.step())
    assert set(json.loads(text)) == {"a"}


def test_budget(backend: LlamaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that takes longer than its budget under a grammar ends its sequence only."""
    monkeypatch.setattr(sampler, "_STRICT_BUDGET_S", -1)
    tokens, error = outcome(backend, "root ::= [a-z]+")
    assert tokens == 0
    assert error is not None
    assert error.param == "grammar"
    monkeypatch.undo()
    assert outcome(backend, "root ::= [a-z]+") == (4, None)


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
