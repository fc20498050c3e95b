"""GBNF without recursion is a regular expression: most of what clients send."""

from __future__ import annotations

from worker.grammar.gbnf import Grammar, Ranges, characters

# Of the expression, and of all that it is made of.
_MAX_CHARS, _MAX_TOTAL = 1 << 18, 1 << 22


def regex_of(grammar: Grammar) -> str | None:
    """The expression, in Rust's syntax, that describes the same texts.

    None where a rule contains itself, and where rules that are used often, or hold each other, make
    it too long.
    """
    found = {node: class_of(*each) for node, each in grammar.chars.items()}
    total = 0
    for node in _ordered(grammar):
        if node in grammar.chars:
            continue
        sequences = grammar.choices.get(node) or [[grammar.repeats[node][0]]]
        length = sum(len(found[item]) for sequence in sequences for item in sequence)
        total += length
        if length > _MAX_CHARS or total > _MAX_TOTAL:
            return None
        parts = ("".join(found[item] for item in sequence) for sequence in sequences)
        found[node] = f"(?:{'|'.join(parts)})"
        if node in grammar.repeats:
            _, least, most = grammar.repeats[node]
            found[node] += f"{{{least},{'' if most < 0 else most}}}"
    return found.get(grammar.rules["root"])


def _ordered(grammar: Grammar) -> list[int]:
    """What `root` is made of, each node behind what it holds; empty where one holds itself."""
    order: list[int] = []
    opened: set[int] = set()
    closed: set[int] = set()
    stack = [grammar.rules["root"]]
    while stack:
        node = stack[-1]
        if node in closed:
            stack.pop()
            continue
        inner = _inside(grammar, node)
        if node in opened:
            stack.pop()
            if not inner <= closed:
                return []
            closed.add(node)
            order.append(node)
        else:
            opened.add(node)
            if inner & opened - closed:
                return []
            stack += inner - closed
    return order


def _inside(grammar: Grammar, node: int) -> set[int]:
    if node in grammar.repeats:
        return {grammar.repeats[node][0]}
    return {item for sequence in grammar.choices.get(node, ()) for item in sequence}


def class_of(negated: bool, ranges: Ranges) -> str:
    if not ranges:
        return "(?s:.)"
    # llguidance lets the characters beside the surrogates through where a class is negated, so the
    # others are named.
    spans = characters(negated, ranges)
    inside = "".join(f"\\x{{{low:x}}}-\\x{{{high:x}}}" for low, high in spans)
    return f"[{inside}]"
