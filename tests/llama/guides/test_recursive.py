"""GBNF that recurses: llguidance allows the same tokens as llama.cpp, at each place."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.grammars import GOOD, HARD, WIDE
from tests.support.guided import Writer
from tests.support.llama_grammar import LlamaGrammar
from worker.errors import RequestError
from worker.grammar.client_grammar import grammar_constraint
from worker.grammar.constraint import Constraint, schema_constraint
from worker.grammar.converted import regex_of
from worker.grammar.gbnf import parse_gbnf
from worker.llama.guides.matcher import Matcher, TokenMask

# Ends of rules, of options and of groups, several rules in a ring, entries into it from elsewhere.
RECURSIVE = {
    "right": 'root ::= [a-z] root | "."',
    "may end": 'root ::= [a-z] root | ""',
    "option": "root ::= ([a-c] root)?",
    "group": 'root ::= "a" ("b" | "c" (root | "d"))',
    "ring": 'root ::= "a" r | "x"\nr ::= "b" s | "y"\ns ::= "c" root | "d" r | "z"',
    "entries": 'root ::= "(" r ")" s "." | r\nr ::= "a" s | "b"\ns ::= "c" r | "d" | "e" root',
    "brackets": 'root ::= "a" root "b" root | ""',
    "palindrome": 'root ::= "a" root "a" | "b" root "b" | [ab]?',
    "greedy": 'root ::= word root? "end"\nword ::= [a-z]+ " "',
    "counts": 'root ::= "a"{2,3} root{0,2} "b"+ | "c"',
    "classes": 'root ::= [^a-m] root | [a-f] "z" | . "." ',
    "empty class": "root ::= [a-c] root | [b-d]",
    **{name: text for name, text in GOOD.items() if name.endswith("_GBNF")},
}


def ours_of(writer: Writer, text: str) -> Matcher:
    """Ours, at the beginning."""
    return writer.guides.matcher_of(Constraint(kind="gbnf", text=text)).copy()


def compared(writer: Writer, text: str, seed: int, steps: int) -> None:
    """At each place of a random text the same tokens may come, the ends among them. Where one must
    come it is one of theirs, and all theirs are taken.

    Of tokens without text and of bytes that are no ASCII the two have views of their own.
    """
    vocab, draw = writer.vocab, random.Random(seed)
    plain = np.array([piece.isascii() and b"\0" not in piece != b"" for piece in vocab.pieces])
    ends = sorted(vocab.end_tokens)
    plain[ends] = True
    ours, theirs = ours_of(writer, text), LlamaGrammar(text, writer)
    try:
        for _ in range(steps):
            forced, may_come = ours.forced_tokens(), theirs.allowed() & plain
            if forced:
                assert may_come[forced[0]], text
            else:
                assert np.array_equal(_mask(ours, vocab.size) & plain, may_come), text
            may_come[ends] = False
            allowed = np.flatnonzero(may_come)
            if not len(allowed):
                return
            token = int(draw.choice(allowed))
            ours.accept(token)
            theirs.accept(token)
    finally:
        ours.free()
        theirs.free()


def _mask(matcher: Matcher, size: int) -> np.ndarray:
    mask = TokenMask(size)
    matcher.fill(mask)
    return np.unpackbits(mask.words.view(np.uint8), bitorder="little")[:size].astype(bool)


def test_a_text_of_too_many_ways(writer: Writer) -> None:
    """A text that a client's grammar reads in too many ways ends with an error, long before a token
    costs others half a second; JSON may have as many ways as llguidance allows."""
    text = "root ::= s\ns ::= s s | [a-z]"
    with pytest.raises(RequestError, match="max is 1250"):
        writer.write(grammar_constraint(text, "grammar"), ignore_eos=True)
    names = {f"p{i}": {"type": "integer"} for i in range(400)}
    wide = schema_constraint({"type": "object", "properties": names}, "response_format")
    assert writer.takes(wide, '{"p1": 1}')


@pytest.mark.parametrize("name", RECURSIVE)
def test_the_same_tokens(writer: Writer, name: str) -> None:
    """Those that llama.cpp ships are among the grammars."""
    for seed in range(4):
        compared(writer, RECURSIVE[name], seed, 12)


def test_any_grammar(writer: Writer) -> None:
    """Rules that are drawn, of which some recurse and pass."""
    count = 0
    for seed in range(300):
        text = "\n".join(f"{name} ::= {body}" for name, body in _bodies(random.Random(seed)))
        grammar = parse_gbnf(text, "grammar")
        if regex_of(grammar) is None:
            count += 1
            compared(writer, text, seed, 6)
    assert count > 20


def _bodies(draw: random.Random) -> Iterator[tuple[str, str]]:
    def item(depth: int) -> str:
        kind = draw.randrange(6 if depth else 4)
        if kind < 2:
            return draw.choice(('"a"', '"ab"', "[a-c]", "[^b]", '"("', '""'))
        if kind < 4:
            return draw.choice(("root", "r", "s"))
        inner = " ".join(['"c"', *(item(depth - 1) for _ in range(draw.randrange(2)))])
        if kind == 4:
            return f"({inner}){draw.choice(('?', '*', '+', '{0,2}'))}"
        return f"({inner} | {item(depth - 1)})"

    def row(first: str) -> str:
        return " ".join([f"[{first}{draw.choice('efgh')}]", *(item(1) for _ in range(2))])

    for name in ("root", "r", "s"):
        yield name, " | ".join([*map(row, draw.sample("abcd", 2)), '"z"'])


@pytest.mark.parametrize("name", ["right", "may end", "option", "ring", "greedy"])
def test_a_long_text(writer: Writer, name: str) -> None:
    """The ends of all the rules that are open are no work for each token."""
    cycles = {"ring": b"abc", "greedy": b"a ", "option": b"abc"}
    tokens = {piece: token for token, piece in enumerate(writer.vocab.pieces) if len(piece) == 1}
    ours = ours_of(writer, RECURSIVE[name])
    cycle = cycles.get(name, b"a")
    for place in range(6_000):
        token = tokens[cycle[place % len(cycle)].to_bytes()]
        assert ours.allows(token)
        ours.accept(token)
    ours.free()


def test_what_llama_cpp_cannot_follow(writer: Writer) -> None:
    """Left recursion and countless readings are no work."""
    for name in HARD:
        text, _ = writer.write(Constraint(kind="gbnf", text=HARD[name]), most=40)
        assert text


@pytest.mark.parametrize("name", WIDE)
def test_too_many_places(writer: Writer, name: str) -> None:
    """They are refused before a step waits for them."""
    with pytest.raises(RequestError):
        ours_of(writer, WIDE[name])


def test_tokens_by_number(writer: Writer) -> None:
    """There is no place for them."""
    with pytest.raises(RequestError, match=r"names a token, '<\[5\]>'"):
        ours_of(writer, "root ::= <[5]> root | <[6]>")
