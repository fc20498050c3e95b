"""Clients' grammars in Lark are told from GBNF, and judged before native code sees them."""

from __future__ import annotations

import pytest

from worker.errors import RequestError
from worker.grammar.client_grammar import grammar_constraint
from worker.limits import GRAMMAR, LARK_PARTS


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('root ::= "a"', "gbnf"),
        ('start ::= "a"\nroot ::= start', "gbnf"),
        ('root ::= "start: a"', "gbnf"),
        ('start: "a"', "lark"),
        ("a: /x/\n  ?start : a", "lark"),
        ('start[max_tokens=3]: "a"', "lark"),
        ('\n%llguidance {"no_forcing": true}\nstart: "a"', "lark"),
        ("", "gbnf"),
    ],
)
def test_which_it_is(text: str, kind: str) -> None:
    """Its header or a rule named start says so."""
    assert grammar_constraint(text, "field").kind == kind


def test_schemas_in_it_are_read() -> None:
    """As an answer's schema is, each where it stands."""
    text = 'start: "x" %json {"const": 1} | b\nb: %json {"title": "b"} "y"'
    made = grammar_constraint(text, "field").text
    assert made.startswith('start: "x" %json {"x-guidance"')
    assert '"const": 1} | b\nb: %json {"x-guidance"' in made
    assert "title" not in made
    assert made.endswith('}} "y"')


@pytest.mark.parametrize(
    "text",
    [
        'start: %json {"a":',
        'start: %json {"uniqueItems": true}',
        f"start: %json {'[' * 5000}",
        "start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(LARK_PARTS.most)),
        'start: "a"' + " " * GRAMMAR.most,
        'start: "\0"',
    ],
)
def test_bad(text: str) -> None:
    """It is refused under the client's name for it."""
    with pytest.raises(RequestError, match="field") as caught:
        grammar_constraint(text, "field")
    assert caught.value.param == "field"
