"""JSON schemas to grammars, by llama-cpp-python's own converter, with limits in front of it.

The converter ignores keywords that it does not know. So it only gets the keywords that it follows,
and a keyword that would change what is valid is refused. The grammar may be stricter than the
schema: objects are closed. It is looser in three places: oneOf means anyOf, an unknown format is
any text, and `.` in a pattern may be a quote or a backslash.
"""

from __future__ import annotations

import json

from worker.engine.sampling import MAX_GRAMMAR_CHARS
from worker.errors import RequestError
from worker.grammar.check import check_gbnf
from worker.grammar.schema import Schema, SchemaReader
from worker.imports import bare_package

with bare_package("llama_cpp"):
    from llama_cpp.llama_grammar import JSON_GBNF, SchemaConverter

# A JSON string holds no control character as it is. The converter's own rule lets them through.
_CHAR = r"""[^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})"""


def grammar_of(schema: Schema | None, param: str) -> str:
    """GBNF for a JSON schema, or for any JSON object.

    Raises RequestError for a schema that is too deep, refers to other documents, makes a grammar
    that llama.cpp cannot follow in time, or says what no grammar can.
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
    """The pinned converter. It is given the references, and three mistakes of it are mended: how
    it writes texts, how it writes counts, and what may stand in a string."""

    def __init__(self, definitions: Schema) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            prop_order=dict[str, int](),
            allow_fetch=False,
            dotall=False,
            raw_pattern=False,
        )
        self._rules["char"] = _CHAR
        self._refs = {f"#/$defs/{name}": schema for name, schema in definitions.items()}

    def convert(self, schema: Schema) -> str:
        self.visit(schema, "")
        return self.format_grammar()

    def _format_literal(self, literal: str) -> str:
        """GBNF for a JSON text. The original does not escape backslashes."""
        text = json.dumps(json.loads(literal), ensure_ascii=False)
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def visit(self, schema: Schema, name: str) -> str:
        """As the original, but counts become {m,n}; the original nests a group for each of them."""
        rule, kind = name or "root", schema.get("type")
        if kind == "array" and isinstance(schema.get("items"), dict):
            item = self.visit(schema["items"], f"{name}{'-' if name else ''}item")
            least, most = schema.get("minItems", 0), schema.get("maxItems")
            end = "" if most is None else max(0, most - 1)
            more = f'{item} ("," space {item}){{{max(0, least - 1)},{end}}}'
            body = "" if most == 0 else more if least else f"({more})?"
            return self._rule(rule, f'"[" space {body} "]" space')
        if kind == "string" and schema.keys() & {"minLength", "maxLength"}:
            counts = f"{{{schema.get('minLength', 0)},{schema.get('maxLength', '')}}}"
            return self._rule(rule, rf'"\"" char{counts} "\"" space')
        return str(super().visit(schema, name))  # pyright: ignore

    def _rule(self, name: str, body: str) -> str:
        return self._add_rule(name, body)  # pyright: ignore[reportUnknownMemberType]
