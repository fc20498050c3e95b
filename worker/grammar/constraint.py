"""What an answer must match: one neutral form for all fields that ask for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, NoReturn

import msgspec

from worker.errors import RequestError
from worker.grammar.schema import SchemaReader
from worker.limits import CHOICES, GRAMMAR, LARK, OPTIONAL, REGEX, SCHEMA, Limit

ConstraintKind = Literal["json_schema", "regex", "lark", "gbnf"]

_LIMITS: dict[ConstraintKind, Limit] = {
    "json_schema": SCHEMA,
    "regex": REGEX,
    "lark": LARK,
    "gbnf": GRAMMAR,
}
_OPTIONAL = re.compile(r"[?*{]|\|(?=[|)])|\((?=\|)")
_SPECIAL = re.compile(r"[\\.^$|?*+()\[\]{}/&~#-]")


class Constraint(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """What the text of one sequence must match; hashable.

    kind          how `text` is written: a JSON schema that `SchemaReader` has read, a regular
                  expression for the whole text (Rust's syntax, without look-around), llguidance's
                  Lark with a rule `start`, or llama.cpp's GBNF with a rule `root`
    param         the client's field that it was made from, to name in errors
    starts_after  texts: what comes before the first of them is free, and the constraint holds from
                  the character that follows it; with neither texts nor tokens it holds from the
                  first token
    starts_after_tokens  token ids with the same meaning, control tokens for example
    required      whether the text must come to the constraint; else it may also end in free text
    loosened      parts of the client's schema that it does not hold
    is_written    whether the client wrote the grammar itself, which may be ambiguous
    repeats       whether free text follows as soon as the constraint may end, and then the
                  constraint again; else only the end may follow

    An answer of a model that thinks, then writes JSON:

        schema_constraint(schema, "response_format", starts_after=("</think>",))

    Tool calls that the model may make, as often as it wants, between any texts. Any text may end
    `start`, so that one token may hold the end of a call and what follows:

        lark = 'start: ws %json ' + held_text(schema) + ' ws "</tool_call>" any\\n'
        lark += 'ws: /[ \\\\n]{0,4}/\\nany: /(.|\\\\n)*/'
        Constraint(kind="lark", text=lark, param="tools",
                   starts_after=("<tool_call>",), required=False, repeats=True)

    Free text costs nothing. `LlamaBackend.prepare` judges and compiles a constraint, in the
    request's own thread; what is not prepared is compiled when its sampler is made.
    """

    kind: ConstraintKind
    text: str
    param: str = "grammar"
    starts_after: tuple[str, ...] = ()
    starts_after_tokens: tuple[int, ...] = ()
    required: bool = True
    is_written: bool = False
    repeats: bool = False
    loosened: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        limit = _LIMITS[self.kind].most
        if len(self.text) > limit:
            self.refuse(f"is longer than {limit} characters")
        if "\0" in self.text or any("\ud800" <= char <= "\udfff" for char in self.text):
            self.refuse("holds a NUL character or half a surrogate pair")

    @property
    def is_lazy(self) -> bool:
        """Whether it begins behind something that the text must come to first."""
        return bool(self.starts_after or self.starts_after_tokens)

    def refuse(self, why: str) -> NoReturn:
        """Raise RequestError with one sentence, which names the client's field."""
        raise RequestError(f"{self.param} {why}.", param=self.param)


def schema_constraint(
    schema: dict[str, Any] | bool | None, param: str, *, strict: bool = True, **fields: Any
) -> Constraint:
    """JSON that is valid by `schema`; None: any JSON object.

    strict: see `SchemaReader`
    fields: more fields of the Constraint; one that starts later may begin with white space
    Raises RequestError for a schema that no grammar can hold, as far as that is known before it is
    compiled.
    """
    found = SchemaReader({"type": "object"} if schema is None else schema, param, strict=strict)
    made = Constraint(
        kind="json_schema", text=found.text, param=param, loosened=tuple(found.dropped), **fields
    )
    if made.is_lazy:  # models write empty lines behind their thoughts
        lark = f"start: WS? %json {found.text}\nWS: /[ \\n]{{1,4}}/"
        return msgspec.structs.replace(made, kind="lark", text=lark)
    return made


def schema_text(schema: dict[str, Any] | bool, param: str) -> str:
    """A schema as llguidance takes it, alone or behind `%json` in Lark. Raises RequestError."""
    return SchemaReader(schema, param).text


def regex_constraint(text: str, param: str) -> Constraint:
    """A client's regular expression for the whole text. Raises RequestError."""
    made = Constraint(kind="regex", text=text, param=param)
    if len(_OPTIONAL.findall(text)) > OPTIONAL.most:
        made.refuse(f"has more than {OPTIONAL.most} parts that may be missing")
    return made


def choice_constraint(choices: Sequence[str], param: str, **fields: Any) -> Constraint:
    """Raises RequestError."""
    if not 0 < len(choices) <= CHOICES.most or not all(choices):
        raise RequestError(
            f"{param} must hold 1 to {CHOICES.most} texts that are not empty.", param=param
        )
    text = "|".join(_SPECIAL.sub(r"\\\g<0>", choice) for choice in choices)
    return Constraint(kind="regex", text=text, param=param, **fields)
