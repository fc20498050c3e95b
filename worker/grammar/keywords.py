"""Keywords of JSON schemas: which of them a grammar can hold."""

from __future__ import annotations

Keywords = frozenset[str]

# Keywords whose value is a schema, a list of schemas, schemas by name, a count, a number.
SCHEMAS = frozenset({"items", "additionalItems", "additionalProperties"})
SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
SCHEMA_MAPS = frozenset({"properties", "patternProperties"})
COUNTS = frozenset(
    {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
)
NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})

HELD = (
    SCHEMAS | SCHEMA_LISTS | SCHEMA_MAPS | COUNTS | NUMBERS
    | {"$ref", "$schema", "const", "enum", "type", "required", "pattern", "format"}
)  # fmt: skip

# They change what is valid, and no grammar holds them; beside each the value that says nothing.
# Any other keyword, "title" for example, is an annotation.
NOT_HELD: dict[str, object] = {
    "uniqueItems": False,
    **dict.fromkeys(
        (
            "not", "if", "contains", "minContains", "maxContains", "propertyNames", "dependencies",
            "dependentRequired", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems",
            "$dynamicRef", "$recursiveRef", "extends", "disallow", "divisibleBy",
        ),
        ...,
    ),
}  # fmt: skip

# Schemas behind these hold together with what stands beside them.
APPLIED = frozenset({"$ref", "anyOf", "oneOf", "allOf"})
BESIDE = frozenset({"properties", "patternProperties", "additionalProperties", "required"})

# Other formats are annotations, as the draft of 2020-12 has it.
FORMATS = frozenset({
    "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri",
})  # fmt: skip

# Keywords that a grammar holds, but not with every value: left out one group after the other where
# a schema is too much.
DOUBTFUL: tuple[Keywords, ...] = (
    frozenset(),
    frozenset({"pattern", "format", "patternProperties"}),
    frozenset({"pattern", "format", "patternProperties", "allOf", "oneOf"}) | COUNTS | NUMBERS,
)
