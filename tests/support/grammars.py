"""Grammars that are wrong, too large or hard to follow, and those that users send."""

from __future__ import annotations

import llama_cpp.llama_grammar as examples


def nested_stars(depth: int) -> str:
    """("a"|"a")* inside itself."""
    rule = '"a"'
    for _ in range(depth):
        rule = f"({rule}|{rule})*"
    return f"root ::= {rule}"


def chain(count: int, body: str) -> str:
    """Rules that each use the next as `body` says."""
    rules = (f"r{i} ::= " + body.replace("r", f"r{i + 1}") for i in range(count))
    return "root ::= r0\n" + "\n".join(rules) + f'\nr{count} ::= "a"'


BAD = {
    "parentheses": "root ::= " + "(" * 32_000 + '"a"' + ")" * 32_000,
    "open": "root ::= " + "(" * 65_000,
    "backwards": 'root ::= "a"{5,2}',
    "huge": 'root ::= "a"{1000000}',
    "empty": "",
    "no root": 'a ::= "a"',
    "undefined": "root ::= a",
    "twice": 'root ::= "a"\nroot ::= "b"',
    "escape": r'root ::= "\d"',
}
# Where llama.cpp recurses without an end, or tries every reading of a text.
HARD = {
    "nested stars": nested_stars(8),
    "options of rules": chain(20, "r? r?"),
    "choices of rules": chain(25, "r | r"),
    "ambiguous": "root ::= s\ns ::= [a-z .,] s s s | [a-z .,] s s | [a-z .,]",
    "ambiguous words": 'root ::= ([a-z]+ " "?)+',
    "left recursion": 'root ::= root "a" | "a"',
    "hidden left recursion": 'root ::= a root | "a"\na ::= e\ne ::= ""',
}
# More places at once than are followed.
WIDE = {
    "options": "root ::= " + " ".join(["[a-z ]?"] * 5_000),
    "option pairs": "root ::= " + "(x|y)? " * 2_000 + "\nx ::= [a-z]*\ny ::= [a-z ]*",
}
GOOD = {
    **{name: getattr(examples, name) for name in dir(examples) if name.endswith("_GBNF")},
    "deep": "root ::= " + "(" * 200 + '"a"' + ")" * 200,
    "alternatives": "root ::= " + "|".join(f'"~{i}"' for i in range(900)),
}
