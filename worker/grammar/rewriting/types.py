"""What a schema says of types."""

from __future__ import annotations

from typing import Any, cast

from worker.grammar.keywords import ABOUT, TYPES, Schema


def types_of(own: Schema) -> list[str]:
    """The types that it names; all where it names none."""
    kinds = own.get("type", list(TYPES))
    kinds = cast("list[Any]", kinds if isinstance(kinds, list) else [kinds])
    return [kind for kind in kinds if isinstance(kind, str)]


def keep_types(own: Schema, kinds: list[str]) -> bool:
    """Only values of these are valid. False: none is."""
    own["type"] = kinds[0] if len(kinds) == 1 else kinds
    prune(own)
    return bool(kinds)


def without_type(own: Schema, kind: str) -> bool:
    """Values of this type are not valid. False: none is."""
    return keep_types(own, [each for each in types_of(own) if each != kind])


def prune(own: Schema) -> None:
    """Take away what is about values of types that cannot be."""
    kinds = set(types_of(own))
    if "type" not in own or not kinds <= {*TYPES, "integer"}:
        return
    kinds |= {"number"} if "integer" in kinds else set()
    for key in [*own]:
        if key in ABOUT and ABOUT[key] not in kinds:
            del own[key]


def says_nothing(value: Any) -> bool:
    """Whether it is a schema of any value."""
    return value is True or value == {}


def is_count(value: Any) -> bool:
    """Whether it is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(own: Schema) -> bool:
    """Whether all numbers of a schema are integers."""
    kinds = own.get("type")
    kinds = cast("list[Any]", kinds if isinstance(kinds, list) else [kinds])
    return "integer" in kinds and "number" not in kinds


def num_required(own: Schema) -> int:
    """Properties that come in any case, each once."""
    names, properties = own.get("required"), own.get("properties")
    if not isinstance(names, list) or not isinstance(properties, dict):
        return 0
    return len({name for name in cast("list[Any]", names) if name in properties})
