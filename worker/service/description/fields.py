"""What the docstrings of structs say of their fields."""

from __future__ import annotations

import functools
import inspect
import re

import msgspec

from worker.api.common.sampling import SamplingFields
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
