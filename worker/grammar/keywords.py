"""Keywords of JSON schemas: which of them a grammar can hold, and what they say of types."""

from __future__ import annotations

from typing import Any, cast

Keywords = frozenset[str]
Schema = dict[str, Any]

TYPES = ("null", "boolean", "number", "string", "array", "object")  # an integer is a number

# Keywords whose value is a schema, a list of schemas, schemas by name, a count, a number.
SCHEMAS = frozenset({"items", "additionalItems", "additionalProperties"})
SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
# Addresses of `$schema` that llguidance knows; it refuses others.
DRAFTS = frozenset(
    {
        "http://json-schema.org/draft-04/schema",
        "http://json-schema.org/draft-06/schema",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    }
)
SCHEMA_MAPS = frozenset({"properties", "patternProperties"})
COUNTS = frozenset(
    {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
)
NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})

HELD = (
    SCHEMAS | SCHEMA_LISTS | SCHEMA_MAPS | COUNTS | NUMBERS
    | {"$ref", "$dynamicRef", "$recursiveRef", "$schema", "const", "enum", "type", "required"}
    | {"pattern", "format"}
)  # fmt: skip

# They change what is valid, and no grammar holds them where `rewriting` leaves them. Any other
# keyword, "title" for example, is an annotation.
NOT_HELD: Keywords = frozenset(
    "uniqueItems not if contains minContains maxContains propertyNames dependencies "
    "dependentRequired dependentSchemas unevaluatedProperties unevaluatedItems extends "
    "disallow divisibleBy".split()
)

# What a model may be trusted with: left out, with a word in the log, unless the client says strict.
LOOK_AROUND, WHOLE = "pattern with a look around", "a whole number beyond 2^53"
ONE_OF = "oneOf where two may hold"
TRUSTED: Keywords = frozenset({"uniqueItems", LOOK_AROUND, WHOLE, ONE_OF})

# Keyword -> the only type whose values it is about.
_ARRAYS = (
    "items prefixItems additionalItems minItems maxItems uniqueItems contains minContains "
    "maxContains unevaluatedItems"
)
_OBJECTS = (
    "properties patternProperties additionalProperties required minProperties maxProperties "
    "propertyNames dependencies dependentRequired dependentSchemas unevaluatedProperties"
)
ABOUT: dict[str, str] = {
    **dict.fromkeys(_ARRAYS.split(), "array"),
    **dict.fromkeys(_OBJECTS.split(), "object"),
    **dict.fromkeys(("pattern", "format", "minLength", "maxLength"), "string"),
    **dict.fromkeys(NUMBERS, "number"),
}

# Schemas behind these hold together with what stands beside them.
APPLIED = frozenset({"$ref", "anyOf", "oneOf", "allOf"})
BESIDE = frozenset(
    "properties patternProperties additionalProperties required unevaluatedProperties "
    "propertyNames".split()
)
# And these with what they are about, where it says something.
CONDITIONS = frozenset({"then", "else", "dependentSchemas", "dependencies"})

# Other formats are annotations, as the draft of 2020-12 has it.
FORMATS = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid uri".split())

# Keywords that a grammar holds, but not with every value: left out one group after the other where
# a schema is too much.
DOUBTFUL: tuple[Keywords, ...] = (
    frozenset(),
    frozenset({"pattern", "format", "patternProperties"}),
    frozenset({"pattern", "format", "patternProperties", "allOf", "oneOf"}) | COUNTS | NUMBERS,
)


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
    return value is True or value == {}


def is_count(value: Any) -> bool:
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
