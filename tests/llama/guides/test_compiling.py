"""Compiling has a budget and a bounded cache; what cannot be held is refused."""

from __future__ import annotations

import ctypes
import json
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from string import ascii_lowercase
from typing import Any

import pytest

from benchmarks.constraints.churn import MallInfo
from tests.support.guided import Writer
from worker.budget import UNBOUNDED, Budget, SlowWork
from worker.errors import QueueFullError, RequestError
from worker.grammar.constraint import (
    Constraint,
    ConstraintKind,
    schema_constraint,
    schema_text,
)
from worker.grammar.schema import SchemaReader
from worker.limits import FUEL, SYMBOLS, Limit
from worker.llama.guides import guides as module
from worker.llama.guides.guides import FULL, CompileEffort, Guides, Refused, compile_within
from worker.llama.guides.matcher import Matcher
from worker.llama.guides.native import functions

HOSTILE: dict[str, tuple[str, Any]] = {
    "parentheses": ("regex", "(" * 20_000 + "a" + ")" * 20_000),
    "open": ("regex", "(("),
    "look-around": ("regex", "a(?=b)b"),
    "nothing": ("regex", "[^\\x00-\\U0010FFFF]"),
    "deep rules": ("lark", "start: " + "(" * 3000 + '"a"' + ")" * 3000),
    "no start": ("lark", 'a: "b"'),
    "pattern": ("json_schema", {"type": "string", "pattern": "(("}),
    "look-behind": ("json_schema", {"type": "string", "pattern": "(?<=a)b"}),
    "no value": ("json_schema", {"type": "string", "enum": [1]}),
    "never": ("json_schema", {"properties": {"a": False}, "required": ["a"]}),
    "one of two": ("json_schema", {"oneOf": [{"type": "integer"}, {"minimum": 2}]}),
    "references": (
        "json_schema",
        {"$ref": "#/$defs/0", "$defs": {
            str(i): {"type": "array", "items": {"$ref": f"#/$defs/{i + 1}"}} for i in range(3000)
        } | {"3000": {}}},
    ),
    "multiples": ("json_schema", {"type": "integer", "multipleOf": 99_999_989}),
    "length": ("json_schema", {"const": "x" * (1 << 20)}),
    "patterns at once": ("json_schema", {
        "type": "string", "allOf": [{"pattern": f".*{c}.{{{ord(c)}}}"} for c in ascii_lowercase]
    }),
    "patterns by references": ("json_schema", {
        "$ref": "#/$defs/a", "$defs": {
            c: {"allOf": [{"$ref": f"#/$defs/{d}"}, {"properties": {"x": {"pattern": c}}}]}
            for c, d in pairwise(ascii_lowercase)
        } | {"z": {}},
    }),
    "patterns of names": ("json_schema", {
        "patternProperties": {f"^w{number}_[a-z]{{1,{number}}}$": {} for number in range(1, 1500)}
    }),
    "many multiples": ("json_schema", {
        "properties": {f"p{number}": {"multipleOf": number} for number in range(9000, 9100)}
    }),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(writer: Writer, name: str) -> None:
    """Refused under the client's field, and the next one is taken."""

    def make() -> Constraint:
        kind, text = HOSTILE[name]
        if kind == "json_schema":
            return schema_constraint(text, "field")
        return Constraint(kind=kind, text=text, param="field")  # pyright: ignore

    with pytest.raises(RequestError) as caught:
        writer.guides.matcher_of(make())
    assert caught.value.param == "field"
    assert len(caught.value.message) < 400
    assert writer.write(Constraint(kind="regex", text="a"))[0] == b"a"


def regex(text: str, param: str = "a") -> Constraint:
    return Constraint(kind="regex", text=text, param=param)


def test_the_cache_is_bounded(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes; what is asked for again stays, whatever its field."""
    monkeypatch.setattr(module, "_BYTES", 1 << 40)
    monkeypatch.setattr(module, "LARGE", 1 << 50)
    monkeypatch.setattr(module, "MAX_BYTES", 5 << 39)  # two and a half
    guides = Guides(writer.vocab)
    first, second = guides.matcher_of(regex("a")), guides.matcher_of(regex("b"))
    assert guides.matcher_of(regex("a", "other")) is first
    guides.matcher_of(regex("c"))
    assert guides.matcher_of(regex("a")) is first
    assert guides.matcher_of(regex("b")) is not second


def test_a_large_one_is_kept_when_it_comes_again(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes once only pushes nothing out."""
    monkeypatch.setattr(module, "LARGE", 1)
    guides = Guides(writer.vocab)
    first = guides.matcher_of(regex("a"))
    second = guides.matcher_of(regex("a"))
    assert second is not first
    assert guides.matcher_of(regex("a")) is second


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="a C library without it")
def test_what_is_kept_is_small(writer: Writer) -> None:
    """A matcher as it is kept takes less than the library makes, and leaves nothing behind it."""
    look = ctypes.CDLL(None).mallinfo2
    look.restype = MallInfo

    def in_use() -> int:
        found = look()
        return found.uordblks + found.hblkhd

    words = schema_constraint({"enum": [f"{n:05}" * 2 for n in range(4000)]}, "field")
    tokenizer, library = writer.guides.tokenizer, functions()
    init, texts = library.new_init(tokenizer), (words.kind.encode(), words.text.encode())

    def taken() -> tuple[int, int, int]:
        before = in_use()
        made = Matcher(library.new_matcher(init, *texts))
        of_made = in_use() - before
        made.free()
        before = in_use()
        kept = compile_within(words, FULL, tokenizer, writer.vocab.size)
        of_kept = in_use() - before
        assert isinstance(kept, Matcher)
        kept.free()
        return of_made, of_kept, in_use() - before

    taken()  # from now on Python and the libraries have what they need
    of_made, of_kept, left = taken()
    assert 0.3 * of_made < of_kept < 0.95 * of_made
    assert left < 0.05 * of_made


def test_what_a_request_asked_for_stays(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the cache is: nothing is compiled in the engine's thread."""
    monkeypatch.setattr(module, "MAX_BYTES", 1)
    guides = Guides(writer.vocab)
    asked, again = regex("a"), regex("a")
    guides.prepare(asked, UNBOUNDED)
    guides.prepare(again, UNBOUNDED)
    guides.prepare(regex("b"), UNBOUNDED)
    held = guides.matcher_of(asked)
    assert guides.matcher_of(again) is held
    del asked, again
    assert guides.matcher_of(regex("a")) is not held


def test_patience(writer: Writer) -> None:
    """What takes long waits for its turn before it is begun; how it went is known from then on."""
    guides = Guides(writer.vocab)
    long = regex("|".join(f"{number:05}" for number in range(20_000)))
    dear = regex("a?" * 250_000, "field")

    def refuse(work: SlowWork) -> None:
        raise QueueFullError(work)

    full = Budget(make_way=refuse)
    for constraint in (long, dear):
        with pytest.raises(QueueFullError, match="long"):
            guides.matcher_of(constraint, full)
    assert guides.matcher_of(regex("a"), full) is guides.matcher_of(regex("a"))
    assert guides.matcher_of(long) is guides.matcher_of(long, full)
    for budget in (UNBOUNDED, full):
        with pytest.raises(RequestError, match="field takes too much to compile"):
            guides.matcher_of(dear, budget)


@pytest.mark.parametrize(
    ("kind", "text", "limit"),
    [
        ("regex", "a?" * 100_000, FUEL),
        ("lark", "start: " + " ".join(['("a"|"b" start)'] * 9_000), SYMBOLS),
    ],
)
def test_what_is_too_large(writer: Writer, kind: ConstraintKind, text: str, limit: Limit) -> None:
    """The refusal names the limit."""
    with pytest.raises(RequestError, match=f"takes too much to compile.*{limit.most}"):
        writer.guides.matcher_of(Constraint(kind=kind, text=text))


def test_wide_grammars_are_refused_before_they_begin(writer: Writer) -> None:
    """An object of a thousand optional properties, of which any may come first."""
    wide: dict[str, Any] = {"type": "object", "properties": {f"p{i}": {} for i in range(1000)}}
    with pytest.raises(RequestError, match="field takes too much to compile"):
        writer.guides.matcher_of(schema_constraint(wide, "field"))


def test_loosened(writer: Writer) -> None:
    """A tool's schema is held as far as that goes, at worst as any object."""
    loosened = writer.guides.loosener()
    ordinary: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert loosened(ordinary, "f") == schema_text(ordinary, "f")
    assert "uniqueItems" not in loosened({"type": "array", "uniqueItems": True}, "f")
    look = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}}
    assert loosened(look, "f") == schema_text(ordinary, "f")
    huge = {"type": "object", "properties": {"a": {"type": "string", "minLength": 10**12}}}
    assert loosened(huge, "f") == schema_text(ordinary, "f")
    never = {"type": "integer", "minimum": 3, "maximum": 2}
    assert loosened(never, "f") == schema_text({"type": "integer"}, "f")
    lost = {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}, "b": {"const": 1}}}
    kept = {"type": "object", "properties": {"a": {}, "b": {"const": 1}}}
    assert loosened(lost, "f") == schema_text(kept, "f")
    deep = json.loads('{"items":' * 300 + "{}" + "}" * 300)
    assert loosened(deep, "f") == SchemaReader({"type": "object"}, "f").text
    constraint = Constraint(kind="lark", text=f"start: %json {loosened(look, 'f')}")
    assert writer.write(constraint, most=3)[0].startswith(b"{")


def test_loosening_has_a_budget(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is spent the other schemas are any object, and what is known stays known."""
    guides = Guides(writer.vocab)
    one: dict[str, Any] = {"type": "object", "properties": {"a": {}}}
    two: dict[str, Any] = {"type": "object", "properties": {"b": {}}}
    assert guides.loosener()(one, "f") == schema_text(one, "f")
    monkeypatch.setattr(module, "LOOSENING_S", -1)
    spent = guides.loosener()
    assert spent(one, "f") == schema_text(one, "f")
    assert spent(two, "f") == SchemaReader({"type": "object"}, "f").text
    monkeypatch.undo()
    assert guides.loosener()(two, "f") == schema_text(two, "f")


def test_one_compiles_at_a_time(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large schemas that come together leave CPUs to the event loop, and those that take long
    make others wait for nothing."""
    guides = Guides(writer.vocab)
    matcher = guides.matcher_of(regex("b"))
    running = most = 0

    def counted(constraint: Constraint, effort: CompileEffort, *_: object) -> Any:
        nonlocal running, most
        if effort is FULL:
            assert guides.matcher_of(regex("quick")) is matcher
            return matcher
        if constraint.text == "long":
            return Refused("", is_costly=True)
        running += 1
        most = max(most, running)
        time.sleep(0.01)  # others would begin now
        running -= 1
        return matcher

    monkeypatch.setattr(module, "compile_within", counted)
    wanted = [regex(f"a{{{number}}}") for number in range(1, 7)]
    with ThreadPoolExecutor(6) as pool:
        assert len(list(pool.map(guides.matcher_of, [*wanted, regex("long")]))) == 7
    assert (most, running) == (1, 0)
