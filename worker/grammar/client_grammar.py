"""Grammars of clients: llama.cpp's GBNF, or llguidance's Lark."""

from __future__ import annotations

import json
import re
from itertools import zip_longest

from worker.errors import RequestError
from worker.grammar.constraint import Constraint, schema_text
from worker.limits import BRANCHES, GRAMMAR, LARK_PARTS

_HEADER = "%llguidance"
_START = re.compile(r"^[ \t]*[?!]?start\s*(?:\[[^\]\n]*\])?\s*:(?!:)", re.MULTILINE)
_JSON = re.compile(r"%json\s*")
# Where a line begins with a name a rule or a terminal begins, and a terminal's name with a capital.
_HEAD = re.compile(r"^[ \t]*[?!]*_?([A-Za-z])[^:\n]*:", re.MULTILINE)
# An alternative that is one text, which can be spelled in one way only.
_WORD = re.compile(r'\|\s*("(?:[^"\\\n]|\\")*")[ \t]*(?=[|)\r\n]|$)')


def grammar_constraint(text: str, param: str) -> Constraint:
    """Lark where it begins with `%llguidance` or has a rule `start:`, else GBNF.

    Raises RequestError. It is not compiled yet.
    """
    text = text.removeprefix("\ufeff")
    if not (text.lstrip().startswith(_HEADER) or _START.search(text)):
        return Constraint(kind="gbnf", text=text, param=param, is_written=True)
    if len(text) > GRAMMAR.most:
        raise RequestError(f"{param} is longer than {GRAMMAR.most} characters.", param=param)
    texts, schemas = _take_apart(text, param)
    rules = "".join(texts)
    if sum(map(rules.count, ":([~")) > LARK_PARTS.most:
        raise RequestError(
            f"The grammar of {param} has more than {LARK_PARTS.most} rules, groups and classes.",
            param=param,
        )
    if _most_alternatives(rules) > BRANCHES.most:
        raise RequestError(
            f"The grammar of {param} has a rule of more than {BRANCHES.most} alternatives.",
            param=param,
            hint="Gather some of them in rules of their own.",
        )
    whole = [part for pair in zip(texts, [*schemas, ""], strict=True) for part in pair]
    return Constraint(kind="lark", text="".join(whole), param=param, is_written=True)


def _most_alternatives(text: str) -> int:
    """Of one rule, its groups included. Different texts count as none: no two end at one place."""
    most = 0
    heads = list(_HEAD.finditer(text))
    for head, after in zip_longest(heads, heads[1:]):
        if head[1].islower():
            body = text[head.end() : after.start() if after else None]
            most = max(most, 1 + body.count("|") - len({*_WORD.findall(body)}))
    return most


def _take_apart(text: str, param: str) -> tuple[list[str], list[str]]:
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
        schemas.append(schema_text(schema, param))
    return [*around, text[at:]], schemas
