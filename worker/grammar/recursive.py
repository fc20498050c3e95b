"""GBNF whose rules contain themselves, as a grammar in Lark's syntax of single characters."""

from __future__ import annotations

from collections.abc import Iterable

from worker.grammar.gbnf import TOKENS, Grammar
from worker.grammar.regular import MAX_CHARS, class_of

_Sequences = list[list[int]]


def lark_of(grammar: Grammar) -> str | None:
    """The grammar that describes the same texts; None where tokens are named by their numbers, or
    where it would be longer than MAX_CHARS.

    A terminal is one character: a longer one would take all that it can, and what follows it in
    GBNF may be the same. A rule at the end of itself is turned round, as a parser keeps each of its
    beginnings open until its end: `list ::= x list | y` becomes p ::= | p x, list ::= p y.
    """
    if any(low >= TOKENS for _, ranges in grammar.chars.values() for low, _ in ranges):
        return None
    # An option is a choice: it may be the end of its rule.
    options = [node for node, (_, *times) in grammar.repeats.items() if times == [0, 1]]
    choices = grammar.choices | {node: [[grammar.repeats[node][0]], []] for node in options}
    loops = _loops(
        {
            node: [seq[-1] for seq in sequences if seq and seq[-1] in choices]
            for node, sequences in choices.items()
        }
    )
    rules = {"start": f"n{grammar.rules['root']}"}
    length = 0
    wanted = [grammar.rules["root"]]
    while wanted:
        node = wanted.pop()
        name = f"n{node}"
        if name in rules:
            continue
        if node in loops:
            made, inner = _turned(node, loops[node], choices)
        elif node in choices:
            made = {name: _either(map(_row, choices[node]))}
            inner = [item for sequence in choices[node] for item in sequence]
        elif node in grammar.repeats:
            item, least, most = grammar.repeats[node]
            made = {name: f"n{item}{{{least},{'' if most < 0 else most}}}"}
            inner = [item]
        else:
            made, inner = {name: f"/{class_of(*grammar.chars[node])}/"}, []
        rules |= made
        wanted += inner
        length += sum(len(text) for text in made.values())
        if length > MAX_CHARS:
            return None
    return "\n".join(f"{name}: {text}" for name, text in rules.items())


def _turned(
    entry: int, loop: frozenset[int], choices: dict[int, _Sequences]
) -> tuple[dict[str, str], list[int]]:
    """The rules of `entry`, a node of a loop of ends, and the nodes that they use.

    pE_A describes what leads from the entry E to A.
    """
    begins: dict[int, list[str]] = {node: [] for node in loop}
    begins[entry].append('""')
    ends: list[str] = []
    inner: list[int] = []
    for node in loop:
        before = f"p{entry}_{node} "
        for sequence in choices[node]:
            if sequence and sequence[-1] in loop:
                begins[sequence[-1]].append(before + _row(sequence[:-1]))
                inner += sequence[:-1]
            else:
                ends.append(before + _row(sequence))
                inner += sequence
    rules = {f"p{entry}_{node}": _either(rows) for node, rows in begins.items()}
    return {f"n{entry}": _either(ends)} | rules, inner


def _row(sequence: list[int]) -> str:
    return " ".join(f"n{item}" for item in sequence) or '""'


def _either(rows: Iterable[str]) -> str:
    return " | ".join(rows)


def _loops(follows: dict[int, list[int]]) -> dict[int, frozenset[int]]:
    """Node -> all nodes from which it is reached and that it reaches; none that does not reach
    itself (Kosaraju's algorithm)."""
    order: list[int] = []
    seen: set[int] = set()
    for start in follows:
        stack = [(start, iter(follows[start]))] if start not in seen else []
        seen.add(start)
        while stack:
            node, rest = stack[-1]
            after = next((each for each in rest if each not in seen), None)
            if after is None:
                order.append(stack.pop()[0])
            else:
                seen.add(after)
                stack.append((after, iter(follows[after])))
    leads: dict[int, list[int]] = {node: [] for node in follows}
    for node, targets in follows.items():
        for target in targets:
            leads[target].append(node)
    found: dict[int, frozenset[int]] = {}
    placed: set[int] = set()
    for start in reversed(order):
        part, open_nodes = set[int](), [start]
        while open_nodes:
            node = open_nodes.pop()
            if node not in placed:
                placed.add(node)
                part.add(node)
                open_nodes += leads[node]
        if len(part) > 1 or start in follows[start]:
            found |= dict.fromkeys(part, frozenset(part))
    return found
