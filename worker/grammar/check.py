"""Grammars that clients send, read and judged before native code follows them."""

from __future__ import annotations

from worker.grammar.gbnf import Grammar
from worker.limits import ELEMENTS


def checked_gbnf(text: str, param: str) -> Grammar:
    """The grammar. Raises RequestError for one that is wrong or too large.

    `param` is the field that the client sent it in.
    """
    grammar = Grammar(text, param)
    _check_size(grammar)
    return grammar


def _check_size(grammar: Grammar) -> None:
    """Refuse a grammar of more than ELEMENTS elements once its repetitions are written out.

    `("a" "b"){100}` counts as a hundred groups. A rule counts in full once; each mention of its
    name counts as one element.
    """
    named = set(grammar.rules.values())
    size = dict.fromkeys((*grammar.chars, *named), 1)
    total = 0
    for node in grammar.done:
        if node in grammar.repeats:
            inner, least, most = grammar.repeats[node]
            size[node] = size[inner] * max(1, least, most)
            continue
        count = 1 + sum(size[item] for sequence in grammar.choices[node] for item in sequence)
        if node in named:
            total += count
        else:
            size[node] = count
    if total > ELEMENTS.most:
        grammar.refuse(
            f"stands for more than {ELEMENTS.most} elements, its repetitions written out"
        )
