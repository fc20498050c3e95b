"""Structs as JSON schemas: the ones that read requests and make answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from worker.api.common.sampling import FIELD_LIMITS, SamplingFields
from worker.service.description.fields import text_of, texts_of

PLACE = "#/components/schemas/"
_NAME = re.compile(re.escape(PLACE) + r"(\w+)")
JsonSchema = dict[str, Any]


class Schemas:
    """All structs of the API, each once.

    components  name -> its schema
    """

    def __init__(self, taken: Iterable[Any], given: Iterable[Any]) -> None:
        """taken: what bodies are read as; given: what answers are"""
        self._types = list(dict.fromkeys((*taken, *given)))
        found, self.components = msgspec.json.schema_components(
            self._types, ref_template=PLACE + "{name}"
        )
        self._schemas = list(found)
        structs = {struct.__name__: struct for struct in _structs(msgspec.Struct)}
        asked = self._reached(self.of(kind) for kind in taken)
        for name, schema in self.components.items():
            _explain(schema, structs[name])
            if name not in asked:
                _complete(schema, structs[name])

    def of(self, kind: Any) -> JsonSchema:
        """The schema of a type, or of one of several."""
        if isinstance(kind, tuple):
            kinds = cast("tuple[Any, ...]", kind)
            return {"anyOf": [self.of(each) for each in kinds]}
        return self._schemas[self._types.index(kind)]

    def _reached(self, schemas: Iterable[JsonSchema]) -> set[str]:
        """Names of all components that these lead to."""
        names: set[str] = set()
        waiting = list(schemas)
        while waiting:
            for name in set(_names_in(waiting.pop())) - names:
                names.add(name)
                waiting.append(self.components[name])
        return names


def _structs(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in base.__subclasses__():
        if each.__module__.startswith("worker."):
            yield each
        yield from _structs(each)


def _names_in(schema: JsonSchema) -> Iterable[str]:
    return _NAME.findall(msgspec.json.encode(schema).decode())


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
