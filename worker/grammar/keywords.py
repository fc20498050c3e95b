"""Keywords of JSON schemas: which of them a grammar can follow."""

from __future__ import annotations

Keywords = frozenset[str]

UNION: Keywords = frozenset({"oneOf", "anyOf"})

# They change what is valid, whatever the type is, and no grammar follows them.
GENERAL: Keywords = frozenset({
    "not", "if", "then", "else", "nullable", "$dynamicRef", "$recursiveRef", "extends", "disallow",
    "divisibleBy",
})  # fmt: skip

_NUMBER: tuple[Keywords, Keywords] = (
    frozenset(),
    frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
)

# type -> the keywords that a grammar follows, and those that it cannot follow
BY_TYPE: dict[str, tuple[Keywords, Keywords]] = {
    "object": (
        frozenset({"properties", "required", "additionalProperties"}),
        frozenset({
            "patternProperties", "propertyNames", "minProperties", "maxProperties", "dependencies",
            "dependentRequired", "dependentSchemas", "unevaluatedProperties",
        }),
    ),
    "array": (
        frozenset({"items", "prefixItems", "minItems", "maxItems", "additionalItems"}),
        frozenset({"uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems"}),
    ),
    "string": (
        frozenset({"minLength", "maxLength", "pattern", "format"}),
        frozenset({"contentSchema"}),
    ),
    "number": _NUMBER,
    "boolean": (frozenset(), frozenset()),
    "null": (frozenset(), frozenset()),
    "integer": _NUMBER,
}  # fmt: skip

# All keywords that change what is valid. `format` does not: an unknown format is any text. Other
# keywords, "title" for example, are ignored.
RELEVANT: Keywords = frozenset(
    {"$ref", "allOf", "const", "enum", "type"}
    | UNION
    | GENERAL.union(*(followed | not_followed for followed, not_followed in BY_TYPE.values()))
) - {"format"}
