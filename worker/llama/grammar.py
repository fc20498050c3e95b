"""JSON schemas to grammars: llama-cpp-python's own converter, behind limits.

The converter ignores what it does not know, so it gets a schema that holds only what it honours;
a keyword that would change what is valid, and that it does not honour, is refused. What it writes
may be stricter than the schema (closed objects) and is looser in three places: oneOf is anyOf,
formats that it does not know are free text, and `.` in a pattern may be a quote or a backslash.
"""

from __future__ import annotations

import json

from llama_cpp.llama_grammar import JSON_GBNF, PRIMITIVE_RULES, SchemaConverter

from worker.engine.sampling import MAX_GRAMMAR_CHARS
from worker.errors import RequestError
from worker.grammar.check import check_gbnf
from worker.grammar.schema import Schema, SchemaReader


def grammar_of(schema: Schema | None, param: str) -> str:
    """GBNF for a JSON schema, or for any JSON object.

    Raises RequestError for a schema that is deep, remote or explosive, or that says what a
    grammar cannot.
    """
    if schema is None:
        return str(JSON_GBNF)
    reader = SchemaReader(schema, param)
    try:
        grammar = _Converter(reader.definitions).convert(reader.root)
    except Exception:  # noqa: BLE001  (the converter raises whatever it meets)
        raise RequestError(
            f"{param} is not a schema that can be turned into a grammar.", param=param
        ) from None
    if len(grammar) > MAX_GRAMMAR_CHARS:
        raise RequestError(f"{param} makes too large a grammar.", param=param)
    check_gbnf(grammar, param)
    return grammar


class _Converter(SchemaConverter):
    """The pinned converter with its references resolved, and texts and counts written rightly."""

    def __init__(self, definitions: Schema) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            prop_order=dict[str, int](),
            allow_fetch=False,
            dotall=False,
            raw_pattern=False,
        )
        self._refs = {f"#/$defs/{name}": schema for name, schema in definitions.items()}

    def convert(self, schema: Schema) -> str:
        self.visit(schema, "")
        return self.format_grammar()

    def _format_literal(self, literal: str) -> str:
        """GBNF for a JSON text; the original leaves backslashes as they are."""
        text = json.dumps(json.loads(literal), ensure_ascii=False)
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def visit(self, schema: Schema, name: str) -> str:
        """As the original, but counts become {m,n} where that nests a group for each."""
        rule, kind = name or "root", schema.get("type")
        if kind == "array" and isinstance(schema.get("items"), dict):
            item = self.visit(schema["items"], f"{name}{'-' if name else ''}item")
            least, most = schema.get("minItems", 0), schema.get("maxItems")
            end = "" if most is None else max(0, most - 1)
            more = f'{item} ("," space {item}){{{max(0, least - 1)},{end}}}'
            body = "" if most == 0 else more if least else f"({more})?"
            return self._rule(rule, f'"[" space {body} "]" space')
        if kind == "string" and schema.keys() & {"minLength", "maxLength"}:
            char = self._add_primitive("char", PRIMITIVE_RULES["char"])
            counts = f"{{{schema.get('minLength', 0)},{schema.get('maxLength', '')}}}"
            return self._rule(rule, rf'"\"" {char}{counts} "\"" space')
        return str(super().visit(schema, name))  # pyright: ignore

    def _rule(self, name: str, body: str) -> str:
        return self._add_rule(name, body)  # pyright: ignore[reportUnknownMemberType]
