"""Grammars and JSON schemas: the bad are refused before native code, the ordinary are served.

Run as a module it is the child that llama.cpp may kill: grammars in, one line out for each.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import llama_cpp.llama_grammar as examples
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.ggufs import write_llama
from worker.engine.engine import Engine
from worker.engine.request import Request
from worker.engine.sampling import SamplingParams
from worker.errors import RequestError
from worker.grammar.ambiguity import check_gbnf
from worker.llama import sampler
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.grammar import grammar_of
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights


def nested_stars(depth: int) -> str:
    """("a"|"a")* inside itself."""
    rule = '"a"'
    for _ in range(depth):
        rule = f"({rule}|{rule})*"
    return f"root ::= {rule}"


def chain(count: int, body: str) -> str:
    """Rules that each use the next as `body` says."""
    rules = (f"r{i} ::= " + body.replace("r", f"r{i + 1}") for i in range(count))
    return "root ::= r0\n" + "\n".join(rules) + f'\nr{count} ::= "a"'


BAD = {
    "parentheses": "root ::= " + "(" * 32_000 + '"a"' + ")" * 32_000,
    "open": "root ::= " + "(" * 65_000,
    "backwards": 'root ::= "a"{5,2}',
    "huge": 'root ::= "a"{1000000}',
    "nested stars": nested_stars(8),
    "options of rules": chain(20, "r? r?"),
    "choices of rules": chain(25, "r | r"),
    "long chain": chain(5_000, "r"),
    "options": "root ::= " + " ".join(["[a-z ]?"] * 5_000),
    "option pairs": "root ::= " + "(x|y)? " * 2_000 + "\nx ::= [a-z]*\ny ::= [a-z ]*",
    "ambiguous": "root ::= s\ns ::= [a-z .,] s s s | [a-z .,] s s | [a-z .,]",
    "ambiguous words": 'root ::= ([a-z]+ " "?)+',
    "left recursion": 'root ::= root "a" | "a"',
    "hidden left recursion": 'root ::= a root | "a"\na ::= e\ne ::= ""',
    "empty": "",
    "no root": 'a ::= "a"',
    "undefined": "root ::= a",
    "twice": 'root ::= "a"\nroot ::= "b"',
    "escape": r'root ::= "\d"',
    "surrogate": 'root ::= "\ud800"',
    "nul": 'root ::= "\0"',
}
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
GOOD = {
    **{name: getattr(examples, name) for name in dir(examples) if name.endswith("_GBNF")},
    "token": "root ::= <[5]>+ !<[6]>",
    "deep": "root ::= " + "(" * 200 + '"a"' + ")" * 200,
    "alternatives": "root ::= " + "|".join(f'"~{i}"' for i in range(900)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_grammar(name: str) -> None:
    """What kills or holds up llama.cpp is refused at once, under the client's name for it."""
    with pytest.raises(RequestError) as caught:
        check_gbnf(BAD[name], "field")
    assert caught.value.param == "field"


@pytest.mark.parametrize("name", BAD_SCHEMAS)
def test_bad_schema(name: str) -> None:
    """A schema that explodes, or that a grammar cannot follow, is refused at once."""
    with pytest.raises(RequestError) as caught:
        grammar_of(BAD_SCHEMAS[name], "json_schema")
    assert caught.value.param == "json_schema"


class Child:
    """llama.cpp in another process; `ends` says whether it lives through a grammar."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.llama.test_grammar", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def answer(self, grammar: str) -> str:
        """`taken`, `refused`, or nothing from a child that died or took seconds."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(grammar) + "\n")
        stdin.flush()
        line = next((line for line in stdout if line.startswith("answer:")), "")
        return line.removeprefix("answer:").strip()


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Generator[Child]:
    """A child with a tiny vocabulary."""
    child = Child(write_llama(tmp_path_factory.mktemp("grammar") / "tiny.gguf"))
    yield child
    child.process.kill()
    child.process.communicate()


@pytest.mark.parametrize("name", GOOD)
def test_good_grammar(name: str, child: Child) -> None:
    """What users send passes, and llama.cpp takes it."""
    check_gbnf(GOOD[name], "grammar")
    assert child.answer(GOOD[name]) == "taken"


@pytest.mark.parametrize("name", GOOD_SCHEMAS)
def test_good_schema(name: str, child: Child) -> None:
    """Ordinary schemas become grammars that llama.cpp takes."""
    assert child.answer(grammar_of(GOOD_SCHEMAS[name], "json_schema")) == "taken"


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Generator[LlamaBackend]:
    """A tiny model."""
    path = write_llama(tmp_path_factory.mktemp("backend") / "tiny.gguf")
    options = ContextOptions(num_cells=256, num_slots=2)
    with LlamaBackend(path, LoadOptions(n_gpu_layers=0), options) as backend:
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
def test_what_passes_is_harmless(child: Child, bodies: tuple[str, str, str]) -> None:
    """Any grammar that passes is parsed and applied by llama.cpp in a moment."""
    text = "\n".join(
        f"{name} ::= {body}" for name, body in zip(("root", "r", "s"), bodies, strict=True)
    )
    try:
        check_gbnf(text, "grammar")
    except RequestError:
        return
    assert child.answer(text) in ("taken", "refused"), text


def _serve(path: Path) -> None:
    import numpy as np

    weights = Weights(path, LoadOptions(n_gpu_layers=0, vocab_only=True))
    vocab = Vocab(weights.handle, 64)
    for line in sys.stdin:
        signal.alarm(5)  # its default action ends the process even inside native code
        params = SamplingParams(grammar=json.loads(line), temperature=0)
        try:
            chain = sampler.Sampler(
                Request(id="", prompt=(1,), max_tokens=1, sampling=params), vocab
            )
            chain.survivors(np.zeros(vocab.size).tolist())
            chain.free()
            answer = "taken"
        except RequestError:
            answer = "refused"
        signal.alarm(0)
        print(f"answer:{answer}", flush=True)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
