"""Grammars that clients send, judged first: llama.cpp follows a grammar however long it takes."""

from __future__ import annotations

from worker.errors import RequestError
from worker.grammar.gbnf import Grammar
from worker.grammar.readings import check_readings
from worker.grammar.starts import check_starts, nullable_nodes
from worker.limits import ELEMENTS


def check_gbnf(text: str, param: str) -> None:
    """Raise RequestError for a grammar that is wrong, or that llama.cpp could not follow in time.

    `param` is the field that the client sent it in.
    """
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise RequestError(f"{param} holds a NUL character or half a surrogate pair.", param=param)
    grammar = Grammar(text, param)
    _check_size(grammar)
    nullable = nullable_nodes(grammar)
    for inner, _, most in grammar.repeats.values():
        if inner in nullable and most != 1:
            grammar.refuse("repeats something that may be empty")
    check_starts(grammar, nullable)
    check_readings(grammar)


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
