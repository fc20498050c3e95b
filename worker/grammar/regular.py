"""GBNF without recursion is a regular expression: most of what clients send."""

from __future__ import annotations

from worker.grammar.gbnf import TOKENS, Grammar, Ranges, characters

MAX_CHARS = 1 << 18


def regex_of(grammar: Grammar) -> str | None:
    """The expression, in Rust's syntax, that describes the same texts.

    None where a rule contains itself, where tokens are named by their numbers, or where rules that
    are used often make it longer than MAX_CHARS.
    """
    found: dict[int, str] = {}
    for node, (negated, ranges) in grammar.chars.items():
        if any(low >= TOKENS for low, _ in ranges):
            return None
        found[node] = class_of(negated, ranges)
    for node in _ordered(grammar):
        if node in grammar.repeats:
            inner, least, most = grammar.repeats[node]
            count = f"{{{least},{'' if most < 0 else most}}}"
            found[node] = f"(?:{found[inner]}){count}"
        elif node in grammar.choices:
            parts = ("".join(found[item] for item in seq) for seq in grammar.choices[node])
            found[node] = f"(?:{'|'.join(parts)})"
        if len(found.get(node, "")) > MAX_CHARS:
            return None
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
    """The expression of one character."""
    if not ranges:
        return "(?s:.)"
    # llguidance lets the characters beside the surrogates through where a class is negated, so the
    # others are named.
    spans = characters(negated, ranges)
    inside = "".join(f"\\x{{{low:x}}}-\\x{{{high:x}}}" for low, high in spans)
    return f"[{inside}]"
