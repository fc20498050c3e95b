"""GBNF that does not recurse, as a regular expression: Python's `re` reads the same texts."""

from __future__ import annotations

import re

import pytest

from worker.errors import RequestError
from worker.grammar.converted import regex_of
from worker.grammar.gbnf import Grammar, characters

REGULAR = {
    'root ::= "a" [b-d]+ | "x"': (["ab", "abcd", "x"], ["a", "xa", "", "ae"]),
    'root ::= r{2,3} "."\nr ::= [^a-z\\n] | s\ns ::= "yes"?': (
        ["1yes.", "ABC.", "."],
        ["a.", "\n1."],
    ),
    'root ::= "\\"" . "é\\u00e9\\t" "|"* [\\]\\-x]': (['"\néé\t]', '"a\xe9é\t||-'], ['"éé\t]']),
    "root ::= [0-9]{3} # comment": (["123"], ["12", "1234"]),
}  # fmt: skip


@pytest.mark.parametrize("text", REGULAR)
def test_regular(text: str) -> None:
    """Whole texts match, others do not."""
    found = regex_of(Grammar(text, "grammar"))
    assert found is not None
    spelled = re.sub(r"\\x\{([0-9a-f]+)\}", lambda m: f"\\U{int(m[1], 16):08x}", found)
    inside, outside = REGULAR[text]
    for example in inside:
        assert re.fullmatch(spelled, example), example
    for example in outside:
        assert not re.fullmatch(spelled, example), example


@pytest.mark.parametrize(
    "text",
    [
        'root ::= "a" root | "b"',
        'root ::= a\na ::= "(" b ")"\nb ::= a | "x"',
        'root ::= ("x" root)*',
        "root ::= " + " ".join(["a"] * 9) + "\n"
        + "\n".join(f"{c} ::= " + " ".join([chr(ord(c) + 1)] * 9) for c in "abcdef")
        + '\ng ::= "x"',
    ],
)  # fmt: skip
def test_not_regular(text: str) -> None:
    """Recursion, and what would become too long."""
    assert regex_of(Grammar(text, "grammar")) is None


@pytest.mark.parametrize("text", ["[^\\x00-\\U0010FFFF]", "[\\uD800-\\uDFFF]", "[b-a]"])
def test_a_class_without_characters_is_refused(text: str) -> None:
    """Native code would write something in its place."""
    with pytest.raises(RequestError, match="no character"):
        Grammar(f'root ::= "a" {text} "b"', "grammar")


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("[^\\x00-\\uFFFF]", [(0x10000, 0x10FFFF)]),
        ("[^\\x00-\\uFFFE]", [(0xFFFF, 0xFFFF), (0x10000, 0x10FFFF)]),
        ("[^b-ya]", [(0, 0x60), (0x7A, 0xD7FF), (0xE000, 0x10FFFF)]),
        ("[a\\uD700-\\uE001]", [(0x61, 0x61), (0xD700, 0xD7FF), (0xE000, 0xE001)]),
    ],
)
def test_the_characters_of_a_class(text: str, runs: list[tuple[int, int]]) -> None:
    """All are named, also where it is negated: halves of surrogate pairs are no characters."""
    (each,) = Grammar(f"root ::= {text}", "grammar").chars.values()
    found = characters(*each)
    assert {*_all(found)} == {*_all(runs)}


def _all(runs: list[tuple[int, int]]) -> list[int]:
    return [code for first, last in runs for code in range(first, last + 1)]
