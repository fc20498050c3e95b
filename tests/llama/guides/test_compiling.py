"""Compiling has a budget and a bounded cache; what cannot be held is refused."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.guided import Writer
from worker.errors import RequestError
from worker.grammar.constraint import Constraint, held_text, schema_constraint
from worker.grammar.schema import SchemaReader
from worker.llama.guides import guides as module
from worker.llama.guides.guides import Guides

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
        writer.guides.compiled(make())
    assert caught.value.param == "field"
    assert len(caught.value.message) < 400
    assert writer.write(Constraint(kind="regex", text="a"))[0] == b"a"


def test_the_cache_is_bounded(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes; what is asked for again stays, whatever its field."""
    monkeypatch.setattr(module, "MAX_KEPT", 2)
    guides = Guides(writer.vocab, writer.workspace)

    def made(text: str, param: str = "a") -> object:
        return guides.compiled(Constraint(kind="regex", text=text, param=param))

    first, second = made("a"), made("b")
    assert made("a", "other") is first
    made("c")
    assert made("a") is first
    assert made("b") is not second


def test_loosened(writer: Writer) -> None:
    """A tool's schema is held as far as that goes, at worst as any object."""
    loosened = writer.guides.loosened
    ordinary: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert loosened(ordinary, "f") == held_text(ordinary, "f")
    assert "uniqueItems" not in loosened({"type": "array", "uniqueItems": True}, "f")
    look = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}}
    assert loosened(look, "f") == held_text(ordinary, "f")
    huge = {"type": "object", "properties": {"a": {"type": "string", "minLength": 10**12}}}
    assert loosened(huge, "f") == held_text(ordinary, "f")
    deep = json.loads('{"items":' * 300 + "{}" + "}" * 300)
    assert loosened(deep, "f") == SchemaReader({"type": "object"}, "f").text
    constraint = Constraint(kind="lark", text=f"start: %json {loosened(look, 'f')}")
    assert writer.write(constraint, most=3)[0].startswith(b"{")


def test_one_compiles_at_a_time(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large schemas that come together leave CPUs to the event loop."""
    guides = Guides(writer.vocab, writer.workspace)
    matcher = guides.compiled(Constraint(kind="regex", text="b"))
    running = most = 0

    def counted(*_: object) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.01)  # others would begin now
        running -= 1
        return matcher

    monkeypatch.setattr(guides, "_compile", counted)
    wanted = [Constraint(kind="regex", text=f"a{{{number}}}") for number in range(1, 7)]
    with ThreadPoolExecutor(6) as pool:
        assert len(list(pool.map(guides.compiled, wanted))) == 6
    assert (most, running) == (1, 0)
