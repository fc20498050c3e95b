"""JSON schemas that clients send, rewritten with the keywords that a grammar can hold.

llguidance makes the grammar. It stands behind what it takes, but it takes no schema with a keyword
of later drafts that it does not know, follows pointers without their escapes, and recurses.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, NoReturn, cast

from worker.errors import RequestError
from worker.grammar.document import Conjunctions, SchemaDocument, parts_of
from worker.grammar.keywords import (
    APPLIED,
    COUNTS,
    DRAFTS,
    FORMATS,
    HELD,
    LOOK_AROUND,
    NOT_HELD,
    NUMBERS,
    ONE_OF,
    SCHEMA_LISTS,
    SCHEMA_MAPS,
    SCHEMAS,
    TRUSTED,
    TYPES,
    WHOLE,
    Keywords,
    Schema,
    is_count,
    is_whole,
    num_required,
)
from worker.grammar.rewriting.apart import are_apart
from worker.grammar.rewriting.bounds import bound, close_bounds, digits_of, is_exact, whole
from worker.grammar.rewriting.lookaround import conjunction
from worker.grammar.rewriting.rewrite import simplify
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

# What is described is meant.
_DESCRIBED = {"properties": "object", "items": "array", "prefixItems": "array"}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def _refuse(param: str, why: str) -> NoReturn:
    raise RequestError(f"{param} {why}.", param=param)


class SchemaReader:
    """Reads a schema of any draft into one that llguidance takes.

    text      the schema, with how JSON is to be written
    dropped   the keywords that were left out, each once

    What it changes: references lead to `$defs`. Keywords without a meaning for what is valid, and
    formats that llguidance does not know, are left out. An object that describes properties and
    says nothing about others has no others, unless its schema is combined with another one.
    """

    def __init__(
        self,
        schema: Schema | bool,
        param: str,
        *,
        strict: bool = True,
        without: Keywords | None = None,
    ) -> None:
        """Raises RequestError for what cannot be held.

        strict: refuse those of TRUSTED too, else leave them out
        without: leave out whatever cannot be held, where it stands, and these keywords too
        """
        self.param = param
        self._refuse = partial(_refuse, param)
        self.dropped: list[str] = []
        self._left_out = TRUSTED if without is None and not strict else Keywords()
        self._without = without
        self._document = SchemaDocument(schema, self._refuse)
        self._count = 0
        self._num_patterned = 0
        self._multiples: set[float] = set()
        self._names: dict[str, str] = {}
        self._combines = self._document.is_combined
        root = self._read(schema, 0)
        if root is False:
            self._refuse("allows no value")
        definitions: Schema = {}
        while len(definitions) < len(self._names):
            pointer, name = list(self._names.items())[len(definitions)]
            definitions[name] = self._read(self._document.target(pointer), 0)
        self._check_references(root, 0, frozenset(), definitions, set())
        if Conjunctions(definitions).most(root) > PATTERNS.most:
            self._refuse(f"holds one string to more than {PATTERNS.most} patterns at once")
        self.schema: Schema = {} if isinstance(root, bool) else root
        if definitions:
            self.schema["$defs"] = definitions
        self.text = json.dumps({"x-guidance": OPTIONS, **self.schema}, ensure_ascii=False)

    def _drop(self, name: str) -> None:
        """A keyword that cannot be held: left out where that is allowed, else refused."""
        if self._without is None and name not in self._left_out:
            self._refuse(f"uses {name} in a way that no grammar can hold")
        if name not in self.dropped:
            self.dropped.append(name)

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
        if name in names and self._without is None:
            self._refuse("refers to itself")
        if name in names:
            definitions[name] = True
            self._drop("$ref")
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
        own = simplify(cast("Schema", schema), self._document.target)
        if isinstance(own, bool):
            return own
        out: Schema = {}
        for key, value in own.items():
            if key in NOT_HELD or key in (self._without or ()):
                self._drop(key)
            elif key == "additionalItems" and self._combines:
                self._drop(key)  # llguidance reads it past other parts of the schema
            elif key in HELD:
                try:
                    name = "anyOf" if key == "oneOf" and self._is_any_of(value, own) else key
                    self._add(out, name, value, own, depth)
                except RequestError:
                    if self._without is None:
                        raise
                    self._drop(key)
        close_bounds(out)
        if "type" not in out and not out.keys() & APPLIED:
            kinds = [kind for key, kind in _DESCRIBED.items() if key in out]
            out |= {"type": kinds[0]} if kinds else {}
        if "properties" in out and not self._combines:
            out.setdefault("additionalProperties", "patternProperties" in out)
        return out

    def _is_any_of(self, schemas: Any, own: Schema) -> bool:
        """Whether `oneOf` becomes `anyOf`. It is the same where a value can match one only, which
        llguidance does not see behind a reference; else something is lost."""
        if not isinstance(schemas, list) or "anyOf" in own:
            return False
        told = cast("list[Any]", schemas)
        if are_apart(told, self._document.target, closed=not self._combines):
            return True
        if self._without is None and not self._left_out:
            return False  # llguidance may know
        self._drop(ONE_OF)
        return True

    def _add(self, out: Schema, key: str, value: Any, own: Schema, depth: int) -> None:
        """One keyword that can be held. own: the schema that it is part of"""
        if key in _REFERENCES:
            self._document.target(value)
            name = self._names.setdefault(value, f"r{len(self._names)}")
            out["$ref"] = f"#/$defs/{name}"
        elif key in SCHEMAS and not (key == "items" and isinstance(value, list)):
            out[key] = self._read(value, depth + 1)
        elif key in SCHEMA_LISTS:
            if not isinstance(value, list) or not (value or key == "prefixItems"):
                self._refuse(f"has under {key} no list with something in it")
            parts = [self._read(item, depth + 1) for item in cast("list[Any]", value)]
            out[key] = [*out.get(key, []), *parts]
        elif key in SCHEMA_MAPS:
            self._add_parts(out, key, value, depth)
        elif key == "format":
            if isinstance(value, str) and value in FORMATS:
                out[key] = value
        elif key in COUNTS:
            out[key] = self._count_items(key, value)
            if key == "minProperties" and out[key] > max(1, num_required(own)):
                del out[key]  # a name may come twice
                self._drop(key)
        elif key in NUMBERS:
            self._add_number(out, key, value, own)
        elif key in ("const", "enum"):
            self._add_values(out, key, value)
        elif key == "pattern":
            self._add_pattern(out, value)
        elif key == "type":
            kinds = cast("list[Any]", value if isinstance(value, list) else [value])
            if not kinds or not all(kind in (*TYPES, "integer") for kind in kinds):
                self._refuse(f"has a type that is none of {', '.join((*TYPES, 'integer'))}")
            out[key] = value
        elif key == "required":
            if not isinstance(value, list):
                self._refuse("has a required that is no list of names")
            names = cast("list[Any]", value)
            out[key] = [*dict.fromkeys(name for name in names if isinstance(name, str))]
        elif isinstance(value, str) and value.removesuffix("#") in DRAFTS:  # $schema
            out[key] = value

    def _add_parts(self, out: Schema, key: str, value: Any, depth: int) -> None:
        if not isinstance(value, dict):
            self._refuse(f"has {key} of the wrong kind")
        parts = cast("Schema", value)
        if key == "patternProperties":
            self._count_patterned(len(parts))
            if not all(conjunction(pattern) == [pattern] for pattern in parts):
                self._drop(LOOK_AROUND)
                out["additionalProperties"] = True
                return
        out[key] = {name: self._read(part, depth + 1) for name, part in parts.items()}

    def _add_pattern(self, out: Schema, value: Any) -> None:
        """One that looks around as several that do not."""
        if not isinstance(value, str):
            self._refuse("has a pattern that is no text")
        patterns = conjunction(value)
        if patterns is None:
            self._drop(LOOK_AROUND)
            return
        out["pattern"] = patterns[0]
        if len(patterns) > 1:
            more = [{"pattern": pattern} for pattern in patterns[1:]]
            out["allOf"] = [*out.get("allOf", []), *more]

    def _add_number(self, out: Schema, key: str, value: Any, own: Schema) -> None:
        if key == "multipleOf":
            is_light = is_count(value) and value > 0 and self._is_light(value)
            found = (key, value) if is_light else None
        else:
            found = bound(key, value, is_integer=is_whole(own))
        if found is None:
            self._drop(key)
            return
        name, number = found
        tighter = max if name.startswith("min") else min
        out[name] = tighter(number, out[name]) if name in out else number

    def _add_values(self, out: Schema, key: str, value: Any) -> None:
        """Whole numbers that are no float64 as ranges that hold little else."""
        if key == "enum" and not (isinstance(value, list) and value):
            self._refuse("has an enum that is not a list with something in it")
        values = cast("list[Any]", value if key == "enum" else [value])
        ranges = [whole(each, seeks=len(values) <= 100) for each in values]
        if not any(ranges):
            out[key] = self._exact(value)
            return
        for found in ranges:
            if found and not (found.divisor and self._is_light(found.divisor)):
                self._drop(WHOLE)
        self._count += len(ranges)
        kept = [self._exact(each) for each, found in zip(values, ranges, strict=True) if not found]
        parts: list[Any] = [found.schema for found in ranges if found]
        choice = {"anyOf": [*parts, {"enum": kept}] if kept else parts}
        out["allOf"] = [*out.get("allOf", []), choice]

    def _is_light(self, multiple: float) -> bool:
        """Whether there is room for one more state for each remainder."""
        self._multiples.add(digits_of(multiple))
        return sum(self._multiples) <= MULTIPLES.most

    def _count_patterned(self, count: int) -> None:
        """Native code compares each with each, and each with all names."""
        self._num_patterned += count
        if self._num_patterned > PATTERNED.most:
            self._refuse(f"has more than {PATTERNED.most} patternProperties")

    def _count_items(self, key: str, value: Any) -> int:
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
        if not is_exact(value):
            self._refuse(f"has a number beyond {EXACT.most} that native code would round")
        return value
