"""GBNF as llguidance reads it: a regular expression where no rule contains itself, else Lark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from worker.grammar.gbnf import Grammar, Ranges, characters
from worker.limits import NESTED

# Of the expression, and of all that it is made of.
_MAX_CHARS, _MAX_TOTAL = 1 << 18, 1 << 22


def regex_of(grammar: Grammar) -> str | None:
    """The expression, in Rust's syntax, that describes the same texts.

    None where a rule contains itself, and where rules that are used often, or hold each other, make
    it too long.
    """
    found = {node: class_of(*each) for node, each in grammar.chars.items()}
    total = 0
    for node in _order(grammar):
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


def _order(grammar: Grammar) -> list[int]:
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


# Beyond it llguidance's symbols run out.
_MAX_TURNED = 1 << 17
# Where a text may be each of many alternatives a letter costs their square; in groups of so many it
# costs so many times their number.
_MAX_ALTERNATIVES = 16
_NAME = re.compile(r"\b[np][0-9_]+")

_Sequences = list[list[int]]


def lark_of(grammar: Grammar) -> str:
    """The grammar that describes the same texts. Raises RequestError where it is nested too deep.

    A terminal is one character: a longer one would take all that it can, and what follows it in
    GBNF may be the same. A rule at the end of itself is turned round, as a parser keeps each of its
    beginnings open until its end: `list ::= x list | y` becomes p ::= | p x, list ::= p y. Where
    that makes too much of many rules in a ring they stay as they are, and texts end sooner.
    """
    # An option is a choice: it may be the end of its rule.
    options = [node for node, (_, *times) in grammar.repeats.items() if times == [0, 1]]
    choices = grammar.choices | {node: [[grammar.repeats[node][0]], []] for node in options}
    loops = _loops(
        {
            node: [seq[-1] for seq in sequences if seq and seq[-1] in choices]
            for node, sequences in choices.items()
        }
    )
    rules = _rules(grammar, choices, loops) or _rules(grammar, choices, {})
    assert rules is not None
    if _depth(rules) > NESTED.most:
        grammar.refuse(f"is nested deeper than {NESTED.most}")
    return "\n".join(f"{name}: {text}" for name, text in rules.items())


def _rules(
    grammar: Grammar, choices: dict[int, _Sequences], loops: dict[int, frozenset[int]]
) -> dict[str, str] | None:
    """Name -> what it is made of; None where turned rules are too long."""
    rules = {"start": f"n{grammar.rules['root']}"}
    length = 0
    wanted = [grammar.rules["root"]]
    while wanted:
        node = wanted.pop()
        name = f"n{node}"
        if name in rules:
            continue
        if node in loops:
            made, inner = _turn(node, loops[node], choices)
            length += sum(len(text) for text in made.values())
            if length > _MAX_TURNED:
                return None
        elif node in choices:
            made = _either(name, map(_row, choices[node]))
            inner = [item for sequence in choices[node] for item in sequence]
        elif node in grammar.repeats:
            item, least, most = grammar.repeats[node]
            made = {name: f"n{item}{{{least},{'' if most < 0 else most}}}"}
            inner = [item]
        else:
            made, inner = {name: f"/{class_of(*grammar.chars[node])}/"}, []
        rules |= made
        wanted += inner
    return rules


def _depth(rules: Mapping[str, str]) -> int:
    """How many rules native code reads in each other, each where it is first named."""
    seen = {"start"}
    stack = [iter(_NAME.findall(rules["start"]))]
    found = 1
    while stack:
        name = next((each for each in stack[-1] if each not in seen), None)
        if name is None:
            stack.pop()
            continue
        seen.add(name)
        stack.append(iter(_NAME.findall(rules[name])))
        found = max(found, len(stack))
    return found


def _turn(
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
    rules = _either(f"n{entry}", ends)
    for node, rows in begins.items():
        rules |= _either(f"p{entry}_{node}", rows)
    return rules, inner


def _row(sequence: list[int]) -> str:
    return " ".join(f"n{item}" for item in sequence) or '""'


def _either(name: str, rows: Iterable[str]) -> dict[str, str]:
    """A rule of these alternatives, and the rules of its groups where they are many."""
    found = list(dict.fromkeys(rows))
    made: dict[str, str] = {}
    while len(found) > _MAX_ALTERNATIVES:
        groups: list[str] = []
        for at in range(0, len(found), _MAX_ALTERNATIVES):
            groups.append(f"{name}_{len(made)}_")
            made[groups[-1]] = " | ".join(found[at : at + _MAX_ALTERNATIVES])
        found = groups
    return {name: " | ".join(found)} | made


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
