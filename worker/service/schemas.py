"""Structs as JSON schemas: the ones that read requests and make answers."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from worker.api.intake.sampling import FIELD_LIMITS, SamplingFields
from worker.engine.sampling import SamplingParams

# `name  text`, `name, name  text`, or the names alone where the text follows in the next lines.
_FIELD = re.compile(r"(\w+(?:, \w+)*)(?:  +(.*))?")


def text_of(struct: type[msgspec.Struct]) -> str:
    """What a struct is: its docstring without the fields."""
    return _read(struct)[0]


def texts_of(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Field -> what it means, also where a base says so."""
    found: dict[str, str] = {}
    # The fields of a request that samples are told where they are defined.
    also = (SamplingParams,) if issubclass(struct, SamplingFields) else ()
    for base in (*also, *reversed(struct.__mro__)):
        if issubclass(base, msgspec.Struct):
            found |= _read(base)[1]
    return {name: text for name, text in found.items() if name in struct.__struct_fields__}


@functools.cache
def _read(struct: type[msgspec.Struct]) -> tuple[str, dict[str, str]]:
    said: list[str] = []
    fields: dict[str, list[str]] = {}
    names: list[str] = []
    for line in inspect.cleandoc(struct.__dict__.get("__doc__") or "").splitlines():
        match = _FIELD.fullmatch(line)
        found = match[1].split(", ") if match else []
        if match and set(found) <= set(struct.__struct_fields__):
            names = found
            fields |= {name: [match[2]] if match[2] else [] for name in names}
        elif names and line.startswith("  "):
            for name in names:
                fields[name].append(line.strip())
        else:
            names = []
            said.append(line)
    text = "\n".join(said).strip()
    return text, {name: " ".join(parts) for name, parts in fields.items()}


PLACE = "#/components/schemas/"
JsonSchema = dict[str, Any]


class Schemas:
    """All structs of the API, each once.

    components  name -> its schema
    """

    def __init__(self, taken: Iterable[Any], given: Iterable[Any]) -> None:
        """taken: what bodies are read as; given: what answers are"""
        answered, answers = _make_schemas(given)
        asked, bodies = _make_schemas(taken)
        self._schemas = answered | asked
        self.components = dict(sorted({**answers, **bodies}.items()))
        structs = {struct.__name__: struct for struct in _structs(msgspec.Struct)}
        for name, schema in self.components.items():
            _explain(schema, structs[name])
            if name not in bodies:
                _complete(schema, structs[name])

    def of(self, kind: Any) -> JsonSchema:
        if isinstance(kind, tuple):
            kinds = cast("tuple[Any, ...]", kind)
            return {"anyOf": [self.of(each) for each in kinds]}
        return self._schemas[kind]


def _make_schemas(kinds: Iterable[Any]) -> tuple[dict[Any, JsonSchema], dict[str, JsonSchema]]:
    """Type -> its schema, and name -> that of a struct in it."""
    once = list(dict.fromkeys(kinds))
    schemas, components = msgspec.json.schema_components(once, ref_template=PLACE + "{name}")
    return dict(zip(once, schemas, strict=True)), components


def _structs(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in base.__subclasses__():
        if each.__module__.startswith("worker."):
            yield each
        yield from _structs(each)


def _explain(schema: JsonSchema, struct: type[msgspec.Struct]) -> None:
    """Texts from the docstring, and the limits of sampling fields."""
    del schema["title"]
    schema["description"] = text_of(struct)
    texts = texts_of(struct)
    limits = FIELD_LIMITS if issubclass(struct, SamplingFields) else {}
    for name, field in schema["properties"].items():
        if name in limits and "minimum" not in field:
            ends = zip(("minimum", "maximum"), limits[name], strict=True)
            field |= {end: value for end, value in ends if value is not None}
        if name in texts:
            field["description"] = texts[name]
        if field.get("default", False) is None:
            del field["default"]  # null is "not given"


def _complete(schema: JsonSchema, struct: Any) -> None:
    """In an answer every field is there, but those that are left out while they are not set."""
    if struct.__struct_config__.omit_defaults:
        return
    unset = {
        field.encode_name
        for field in msgspec.structs.fields(struct)
        if field.default is msgspec.UNSET
    }
    there = [name for name in schema["properties"] if name not in unset]
    if there:
        schema["required"] = there
    for field in schema["properties"].values():
        field.pop("default", None)
