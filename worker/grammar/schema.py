"""JSON schemas that clients send, rewritten with the keywords that a grammar can hold.

llguidance makes the grammar. It stands behind what it takes, but it takes no schema with a keyword
of later drafts that it does not know, follows pointers without their escapes, and recurses.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any, NoReturn, cast
from urllib.parse import unquote

from worker.errors import RequestError
from worker.grammar.conjunctions import Conjunctions, parts_of
from worker.grammar.keywords import (
    APPLIED,
    BESIDE,
    COUNTS,
    FORMATS,
    HELD,
    NOT_HELD,
    NUMBERS,
    SCHEMA_LISTS,
    SCHEMA_MAPS,
    SCHEMAS,
    Keywords,
)
from worker.limits import (
    COUNT,
    EXACT,
    MULTIPLES,
    PATTERNED,
    PATTERNS,
    REFERRED_DEPTH,
    SCHEMA_DEPTH,
    SUBSCHEMAS,
)

# Whitespace between two tokens of JSON: without a bound a model may write it for ever.
OPTIONS = {"whitespace_pattern": "[ ]|\\n{1,2}[ \\t]{0,20}"}

Schema = dict[str, Any]


class SchemaReader:
    """Reads a schema of any draft into one that llguidance takes.

    text      the schema, with how JSON is to be written
    dropped   where `without` is given: the keywords that were left out, each once

    What it changes: references lead to `$defs`. Keywords without a meaning for what is valid, and
    formats that llguidance does not know, are left out. An object that describes properties and
    says nothing about others has no others, unless its schema is combined with another one.
    """

    def __init__(
        self, schema: Schema | bool, param: str, *, without: Keywords | None = None
    ) -> None:
        """Raises RequestError for what cannot be held.

        without: leave out what cannot be held, and these keywords too; None: refuse it
        """
        self.param = param
        self.dropped: list[str] = []
        self._without = without
        self._document = schema
        self._count = 0
        self._num_patterned = 0
        self._multiples: set[float] = set()
        self._names: dict[str, str] = {}
        self._combines = self._looks_combined()
        root = self._read(schema, 0)
        definitions: Schema = {}
        while len(definitions) < len(self._names):
            pointer, name = list(self._names.items())[len(definitions)]
            definitions[name] = self._read(self._target(pointer), 0)
        self._check_references(root, 0, frozenset(), definitions, set())
        if Conjunctions(definitions).most(root) > PATTERNS.most:
            self._refuse(f"holds one string to more than {PATTERNS.most} patterns at once")
        self.schema: Schema = root if isinstance(root, dict) else ({} if root else {"not": {}})
        if definitions:
            self.schema["$defs"] = definitions
        self.text = json.dumps({"x-guidance": OPTIONS, **self.schema}, ensure_ascii=False)

    def _refuse(self, why: str) -> NoReturn:
        raise RequestError(f"{self.param} {why}.", param=self.param)

    def _drop(self, name: str) -> None:
        """A keyword that cannot be held: left out where that is allowed, else refused."""
        if self._without is None:
            self._refuse(f"uses {name} in a way that no grammar can hold")
        if name not in self.dropped:
            self.dropped.append(name)

    def _looks_combined(self) -> bool:
        """Whether a schema is combined with another one anywhere. Raises where it is too deep.

        Each of the two describes some of the properties, so neither may be closed.
        """
        found = False
        stack: list[tuple[Any, int]] = [(self._document, 0)]
        while stack:
            value, depth = stack.pop()
            if depth > SCHEMA_DEPTH.most:
                self._refuse(f"is nested deeper than {SCHEMA_DEPTH.most}")
            if isinstance(value, dict):
                keys = cast("Schema", value).keys()
                found = found or "allOf" in keys or bool(keys & APPLIED and keys & BESIDE)
                stack += [(item, depth + 1) for item in cast("Schema", value).values()]
            elif isinstance(value, list):
                stack += [(item, depth + 1) for item in cast("list[Any]", value)]
        return found

    def _target(self, pointer: Any) -> Any:
        """The part of the document that a reference means."""
        if not isinstance(pointer, str) or not re.match(r"#(/|$)", pointer):
            self._refuse("refers to another document or to no place in this one")
        value: Any = self._document
        for part in unquote(pointer).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            try:
                value = value[int(key) if isinstance(value, list) else key]  # pyright: ignore
            except (KeyError, IndexError, TypeError, ValueError):
                if key:  # "#/" is the document
                    self._refuse("refers to a place that it does not have")
        return value  # pyright: ignore[reportUnknownVariableType]

    def _check_references(
        self, schema: Any, depth: int, names: frozenset[str], definitions: Schema, seen: set[str]
    ) -> None:
        """Refuse a schema that is nothing but itself, or so deep that native code overflows.

        Native code reads each definition where it is first referred to, and recurses.

        names: definitions that it is part of, with nothing between; seen: those that were read
        """
        if depth > REFERRED_DEPTH.most:
            self._refuse(f"is nested deeper than {REFERRED_DEPTH.most}, with what it refers to")
        if not isinstance(schema, dict):
            return
        own = cast("Schema", schema)
        name = own.get("$ref", "").rpartition("/")[2]
        if name in names:
            self._refuse("refers to itself")
        if name and name not in seen:
            seen.add(name)
            inner = names | {name}
            self._check_references(definitions[name], depth + 1, inner, definitions, seen)
        for key, value in own.items():
            inner = names if key in APPLIED else frozenset[str]()
            for part in parts_of(key, value):
                self._check_references(part, depth + 1, inner, definitions, seen)

    def _read(self, schema: Any, depth: int) -> Schema | bool:
        self._count += 1
        if depth > SCHEMA_DEPTH.most or self._count > SUBSCHEMAS.most:
            self._refuse("has too many schemas inside each other")
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            self._refuse("has something in the place of a schema that is none")
        own = cast("Schema", schema)
        out: Schema = {}
        for key, value in own.items():
            if key in NOT_HELD:
                if value is not NOT_HELD[key]:
                    self._drop(key)
            elif key in (self._without or ()) or (key == "additionalItems" and self._combines):
                self._drop(key)  # llguidance reads additionalItems past other parts of the schema
            elif key in HELD:
                self._add(out, key, value, depth)
        if "type" not in out and "properties" in out and not out.keys() & APPLIED:
            out["type"] = "object"  # what is described is meant
        if "properties" in out and not self._combines:
            out.setdefault("additionalProperties", "patternProperties" in out)
        return out

    def _add(self, out: Schema, key: str, value: Any, depth: int) -> None:
        """One keyword that can be held."""
        if key == "$ref":
            self._target(value)
            name = self._names.setdefault(value, f"r{len(self._names)}")
            out[key] = f"#/$defs/{name}"
        elif key in SCHEMAS and not isinstance(value, list):
            out[key] = self._read(value, depth + 1)
        elif key in SCHEMA_LISTS:
            if not isinstance(value, list) or not (value or key == "prefixItems"):
                self._refuse(f"has a {key} that is not a list with something in it")
            out[key] = [self._read(item, depth + 1) for item in cast("list[Any]", value)]
        elif key in SCHEMA_MAPS:
            if not isinstance(value, dict):
                self._refuse(f"has {key} of the wrong kind")
            parts = cast("Schema", value)
            self._count_patterned(len(parts) if key == "patternProperties" else 0)
            out[key] = {name: self._read(part, depth + 1) for name, part in parts.items()}
        elif key == "format":
            if value in FORMATS:
                out[key] = value
        elif key in COUNTS:
            out[key] = self._counted(key, value)
            if key == "minProperties" and out[key] > 1:  # a name may come twice
                del out[key]
                self._drop(key)
        elif key in NUMBERS:
            if isinstance(value, int | float) and (
                self._is_light(value) if key == "multipleOf" else abs(value) <= EXACT.most
            ):
                out[key] = value
            else:
                self._drop(key)
        elif key in ("const", "enum"):
            out[key] = self._exact(value)
            if key == "enum" and not (isinstance(value, list) and value):
                self._refuse("has an enum that is not a list with something in it")
        else:
            out[key] = value

    def _is_light(self, multiple: float) -> bool:
        """Whether there is room for one more state for each remainder."""
        self._multiples.add(_digits(multiple))
        return sum(self._multiples) <= MULTIPLES.most

    def _count_patterned(self, count: int) -> None:
        """Native code compares each with each, and each with all names."""
        self._num_patterned += count
        if self._num_patterned > PATTERNED.most:
            self._refuse(f"has more than {PATTERNED.most} patternProperties")

    def _counted(self, key: str, value: Any) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self._refuse(f"has a {key} that is not a count")
        if value > COUNT.most:
            if key.startswith("max"):
                return COUNT.most
            self._refuse(f"has a {key} above {COUNT.most}")
        return value

    def _exact(self, value: Any) -> Any:
        """The value; refused where a number in it would not stay what it is."""
        stack = [value]
        while stack:
            item = stack.pop()
            if isinstance(item, int | float) and abs(item) > EXACT.most:
                self._refuse(f"has a number beyond {EXACT.most}")
            if isinstance(item, dict):
                stack += cast("Schema", item).values()
            elif isinstance(item, list):
                stack += cast("list[Any]", item)
        return value


def _digits(value: float) -> float:
    """A number without its point: 1250 for 12.50."""
    if not math.isfinite(value):
        return math.inf
    _, digits, exponent = Decimal(str(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    return int("".join(map(str, digits))) * 10 ** max(0, min(exponent, 20))
