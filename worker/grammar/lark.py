"""Grammars of clients: llama.cpp's GBNF, or llguidance's Lark."""

from __future__ import annotations

import json
import re

from worker.errors import RequestError
from worker.grammar.constraint import Constraint, held_text
from worker.limits import GRAMMAR, LARK_PARTS

_HEADER = "%llguidance"
_START = re.compile(r"^[ \t]*[?!]?start\s*(?:\[[^\]\n]*\])?\s*:(?!:)", re.MULTILINE)
_JSON = re.compile(r"%json\s*")


def grammar_constraint(text: str, param: str) -> Constraint:
    """Lark where it begins with `%llguidance` or has a rule `start:`, else GBNF.

    Raises RequestError. It is not compiled yet.
    """
    if not (text.lstrip().startswith(_HEADER) or _START.search(text)):
        return Constraint(kind="gbnf", text=text, param=param)
    if len(text) > GRAMMAR.most:
        raise RequestError(f"{param} is longer than {GRAMMAR.most} characters.", param=param)
    texts, schemas = _taken_apart(text, param)
    if sum(map("".join(texts).count, ":([~")) > LARK_PARTS.most:
        raise RequestError(
            f"The grammar of {param} has more than {LARK_PARTS.most} rules, groups and classes.",
            param=param,
        )
    whole = [part for pair in zip(texts, [*schemas, ""], strict=True) for part in pair]
    return Constraint(kind="lark", text="".join(whole), param=param)


def _taken_apart(text: str, param: str) -> tuple[list[str], list[str]]:
    """What stands around the schemas behind `%json`, and those: native code recurses over them, so
    they are read first."""
    around: list[str] = []
    schemas: list[str] = []
    at = 0
    while found := _JSON.search(text, at):
        around.append(text[at : found.end()])
        try:
            schema, at = json.JSONDecoder().raw_decode(text, found.end())
        except (ValueError, RecursionError):
            raise RequestError(f"{param} has no JSON schema behind %json.", param=param) from None
        schemas.append(held_text(schema, param))
    return [*around, text[at:]], schemas
