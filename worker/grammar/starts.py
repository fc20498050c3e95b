"""How rules of a grammar begin: which may be empty, left recursion, in how many ways they start."""

from __future__ import annotations

from worker.grammar.gbnf import Grammar
from worker.limits import LEADING, VISITS, WAYS


def nullable_nodes(grammar: Grammar) -> set[int]:
    """The nodes that may match nothing."""
    missing: list[int] = []  # per sequence: how many of its nodes are not known to be nullable
    users: dict[int, list[tuple[int, int]]] = {}  # node -> (sequence, node that it makes nullable)
    todo: list[int] = []
    for owner, sequences in (
        *grammar.choices.items(),
        *((node, [[inner]]) for node, (inner, _, _) in grammar.repeats.items()),
    ):
        for sequence in sequences:
            for item in sequence:
                users.setdefault(item, []).append((len(missing), owner))
            missing.append(len(sequence))
            if not sequence:
                todo.append(owner)
    todo += [node for node, (_, least, _) in grammar.repeats.items() if least == 0]
    found = set(todo)
    while todo:
        for sequence, owner in users.get(todo.pop(), ()):
            missing[sequence] -= 1
            if missing[sequence] == 0 and owner not in found:
                found.add(owner)
                todo.append(owner)
        # A node is taken from `todo` once: it enters with `found`.
    return found


def _firsts(grammar: Grammar, node: int, nullable: set[int]) -> list[int]:
    """The nodes that may come first in a node. One that is written twice is there twice."""
    if node in grammar.repeats:
        return [grammar.repeats[node][0]]
    found: list[int] = []
    for sequence in grammar.choices.get(node, ()):
        for item in sequence:
            found.append(item)
            if item not in nullable:
                break
    return found


def _outwards(grammar: Grammar, nullable: set[int]) -> list[int]:
    """All nodes, each after those that may come first in it. Refuses left recursion."""
    order: list[int] = []
    is_done = dict.fromkeys(range(grammar.count), 0)  # 0 not seen, 1 open, 2 done
    for start in range(grammar.count):
        todo = [start]
        while todo:
            node = todo[-1]
            if is_done[node]:
                todo.pop()
                if is_done[node] == 1:
                    is_done[node] = 2
                    order.append(node)
                continue
            is_done[node] = 1
            for item in _firsts(grammar, node, nullable):
                if is_done[item] == 1:
                    grammar.refuse("has a rule that may begin with itself (left recursion)")
                if not is_done[item]:
                    todo.append(item)
    return order


def check_starts(grammar: Grammar, nullable: set[int]) -> None:
    """Refuse a grammar that costs llama.cpp too much before it has read a character.

    stacks  in how many ways a node can begin
    empty   in how many ways it can match nothing
    visits  nodes that the search for left recursion visits from this node on
    chain   how deep that search goes
    """
    stacks, empty = dict.fromkeys(grammar.chars, 1), dict.fromkeys(grammar.chars, 0)
    visits, chain = dict.fromkeys(grammar.chars, 1), dict.fromkeys(grammar.chars, 1)
    total = 0
    for node in _outwards(grammar, nullable):
        if node in grammar.chars:
            continue
        firsts = _firsts(grammar, node, nullable)
        visits[node] = min(1 + sum(visits[item] for item in firsts), VISITS.most + 1)
        chain[node] = 1 + max((chain[item] for item in firsts), default=0)
        if node in grammar.repeats:
            inner, least, most = grammar.repeats[node]
            stacks[node] = stacks[inner]
            empty[node] = empty[inner] + (least == 0)
            total += visits[node] * max(1, most - least)
        else:
            pairs = [_sum(sequence, stacks, empty) for sequence in grammar.choices[node]]
            stacks[node], empty[node] = sum(p[0] for p in pairs), sum(p[1] for p in pairs)
            total += visits[node]
        if max(stacks[node], empty[node]) > WAYS.most:
            grammar.refuse(f"is ambiguous: a rule can begin in more than {WAYS.most} ways")
        if total > VISITS.most or chain[node] > LEADING.most:
            grammar.refuse("has rules that begin with each other in too many ways")
    for sequences in grammar.choices.values():
        for sequence in sequences:
            _most(grammar, sequence, stacks, empty)


def _sum(sequence: list[int], stacks: dict[int, int], empty: dict[int, int]) -> tuple[int, int]:
    """In how many ways a sequence can begin, and in how many it can be empty."""
    total, ways = 0, 1
    for item in sequence:
        total += ways * stacks[item]
        ways *= empty[item]
        if not ways or total > WAYS.most:
            break
    return total, ways


def _most(
    grammar: Grammar, sequence: list[int], stacks: dict[int, int], empty: dict[int, int]
) -> None:
    """Refuse a sequence that can go on in too many ways at some place in it."""
    ways = 0
    for item in reversed(sequence):
        ways = stacks[item] + empty[item] * ways
        if ways > WAYS.most:
            grammar.refuse(f"is ambiguous: a rule can go on in more than {WAYS.most} ways")
