"""Whatever is drawn: an answer that ends matches its constraint."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest

from benchmarks.constraints.tools import TOOLS
from tests.support.cases import for_each
from tests.support.guided import Writer
from tests.support.models import reference
from tests.support.rows import fits
from worker.errors import RequestError
from worker.grammar.constraint import Constraint, choice_constraint, schema_constraint
from worker.limits import LEXER_STATES
from worker.llama.guides import guides

# So that texts end: quotes, brackets, and few digits and spaces.
LIKED = {b'"': 5.0, b"}": 4.0, b"]": 4.0, b",": 1.0, b" ": -3.0, b"\n": -6.0}
WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"temperature": 0.7, "top_p": 0.9},
    {"top_k": 20},
    {"mirostat": 2},
]
REGEX = "[a-e]{2,}(x|yy)?"


def is_valid(text: bytes, schema: dict[str, Any]) -> bool:
    """Whether a strict reader of JSON and of schemas takes it.

    Numbers are decimals: 529.05 is a multiple of 0.01, and in binary it is none.
    """
    value = json.loads(text.decode(), parse_float=Decimal)
    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    jsonschema.validate(value, exact)  # pyright: ignore[reportUnknownMemberType]
    return True


@for_each("name", TOOLS)
def test_schemas_of_tools(writer: Writer, name: str) -> None:
    """Each ends, and every one that ends is valid, by another reader's judgement."""
    constraint = schema_constraint(TOOLS[name], "field")
    texts = [writer.write(constraint, seed=seed, liked=LIKED) for seed in range(4)]
    assert [is_valid(text, TOOLS[name]) for text, ended in texts if ended]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_way_of_choosing(writer: Writer, way: dict[str, Any]) -> None:
    """A regular expression holds in each of them, and so does GBNF."""
    regular = 'root ::= l l l? l? l? ("x" | "yy")?\nl ::= [a-e]'
    recursive = 'root ::= l l r\nr ::= l r | ("x" | "yy")?\nl ::= [a-e]'
    for constraint in (
        Constraint(kind="regex", text=REGEX),
        Constraint(kind="gbnf", text=regular),
        Constraint(kind="gbnf", text=recursive),
    ):
        for seed in range(10):
            text, ended = writer.write(constraint, seed=seed, **way)
            assert ended
            assert re.fullmatch(REGEX, text.decode())


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_must_come_is_nobodys_choice(writer: Writer, way: dict[str, Any]) -> None:
    """Asked for or not it is the same, and leaves the draws of all else as they were."""
    call = 'start: "<call>" /[ab]{1,9}/ "</call>" '
    one = schema_constraint(TOOLS["edit_file"], "field")
    again = Constraint(kind="lark", text=call, starts_after=("o",), required=False, repeats=True)
    for constraint, most in ((one, 400), (again, 60)):
        for seed in range(3):
            texts = [
                writer.write(
                    constraint, seed=seed, most=most, liked=LIKED | {b"o": 5.0}, ahead=ahead, **way
                )
                for ahead in (False, True)
            ]
            assert texts[0] == texts[1]
    sampler = writer.sampler(Constraint(kind="regex", text="a|departure_date|é"), **way)
    row = np.where([piece == b"d" for piece in writer.vocab.pieces], 9, 0).astype(np.float32)
    assert writer.vocab.pieces[sampler.sample(row)] == b"d"
    coming = sampler.ahead()
    assert coming[:-1] == writer.vocab.within(b"eparture_date")
    assert coming[-1] in writer.vocab.end_tokens
    sampler.free()


def test_choices(writer: Writer) -> None:
    """One of the texts, whatever characters they hold."""
    choices = ["yes", "no", "a.b*c|d", '"quoted"\\', "é\n-&&~/", "[^x]{2}"]
    for choice in choices:
        alone = choice_constraint([choice], "field")
        assert writer.write(alone) == (choice.encode(), True)
    constraint = choice_constraint(choices, "field")
    found = {writer.write(constraint, seed=seed)[0].decode() for seed in range(20)}
    assert len(found) > 1
    assert found <= set(choices)
    for wrong in ([], [""], ["a", "\ud800"], ["a\0"]):
        with pytest.raises(RequestError):
            choice_constraint(wrong, "field")


def test_a_draw_has_the_distribution_of_what_is_allowed(writer: Writer) -> None:
    """Also where a token is chosen first among all, and chosen again where it is not allowed."""
    vocab = writer.vocab
    allowed = np.array([bool(re.fullmatch(b"[abc]+", piece)) for piece in vocab.pieces])
    for shift in (0.0, 9.0):  # first choices mostly fail, mostly stand
        row = np.random.default_rng(4).normal(0, 1, vocab.size).astype(np.float32)
        row[allowed] += shift
        right = reference.probabilities(np.where(allowed, row, -np.inf).astype(np.float32))
        sampler = writer.sampler(Constraint(kind="regex", text="[abc]{4000}"))
        drawn = [sampler.sample(row) for _ in range(1300)]
        sampler.free()
        assert fits(drawn, right)


def test_control_tokens_are_no_text(writer: Writer) -> None:
    """Their spelling is allowed, they are not."""
    name = writer.vocab.name(1)
    constraint = choice_constraint([name], "field")
    assert writer.write(constraint, logit_bias=((1, 100.0),)) == (name.encode(), True)


def test_a_text_of_too_many_states(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with an error, and one that needs fewer is written to its end."""
    few = msgspec.structs.replace(LEXER_STATES, most=1000)
    monkeypatch.setattr(guides, "LEXER_STATES", few)
    with pytest.raises(RequestError, match="takes too much to follow"):
        writer.write(Constraint(kind="regex", text="[a-z]{4000}"))
    assert writer.write(Constraint(kind="regex", text="[a-z]{40}"))[1]


def test_a_whole_text_ends(writer: Writer) -> None:
    """Also where ends are banned: nothing else may follow."""
    constraint = Constraint(kind="regex", text="a", param="field")
    assert writer.write(constraint, ignore_eos=True) == (b"a", True)
    assert writer.write(constraint) == (b"a", True)
