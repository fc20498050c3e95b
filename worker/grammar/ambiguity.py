"""Grammars are judged before llama.cpp sees them: it follows them without a budget."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterable

from worker.errors import RequestError
from worker.grammar.parser import Grammar

MAX_ELEMENTS = 20_000
MAX_STACKS = 1_000
MAX_VISITS = 1_000_000  # by llama.cpp's search for left recursion, which remembers nothing
MAX_CHAIN = 1_000  # its depth
PROBE_CHARS = 32  # about as many as the longest tokens have
MAX_READINGS = 10_000
MAX_PROBE_STACKS = 1_000
MAX_WORK = 300_000


@functools.lru_cache(maxsize=64)  # asked by the service and again before native code
def check_gbnf(text: str, param: str) -> None:
    """Raise RequestError for a grammar that is wrong, or that llama.cpp could not follow in time.

    Measured: a grammar at MAX_STACKS costs llama.cpp some milliseconds a token.
    """
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise RequestError(f"{param} holds a NUL character or half a surrogate pair.", param=param)
    grammar = Grammar(text, param)
    _check_size(grammar)
    nullable = _nullable(grammar)
    for inner, _, most in grammar.repeats.values():
        if inner in nullable and most != 1:
            grammar.refuse("repeats something that may be empty")
    _check_starts(grammar, nullable)
    _check_growth(grammar)


def _check_size(grammar: Grammar) -> None:
    """The elements that repetitions stand for; a rule that is named counts once at each mention."""
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
    if total > MAX_ELEMENTS:
        grammar.refuse(f"stands for more than {MAX_ELEMENTS} elements, its repetitions written out")


def _nullable(grammar: Grammar) -> set[int]:
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
    """The nodes that may come first in a node, as often as they are written there."""
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


def _check_starts(grammar: Grammar, nullable: set[int]) -> None:
    """Bound what llama.cpp does without reading a character.

    stacks  in how many ways a node can begin; empty  in how many ways it can match nothing
    visits, chain  what the search for left recursion costs from there, and how deep it goes
    """
    stacks, empty = dict.fromkeys(grammar.chars, 1), dict.fromkeys(grammar.chars, 0)
    visits, chain = dict.fromkeys(grammar.chars, 1), dict.fromkeys(grammar.chars, 1)
    total = 0
    for node in _outwards(grammar, nullable):
        if node in grammar.chars:
            continue
        firsts = _firsts(grammar, node, nullable)
        visits[node] = min(1 + sum(visits[item] for item in firsts), MAX_VISITS + 1)
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
        if max(stacks[node], empty[node]) > MAX_STACKS:
            grammar.refuse(f"is ambiguous: a rule can begin in more than {MAX_STACKS} ways")
        if total > MAX_VISITS or chain[node] > MAX_CHAIN:
            grammar.refuse("has rules that begin with each other in too many ways")
    for sequences in grammar.choices.values():
        for sequence in sequences:
            _most(grammar, sequence, stacks, empty)


def _sum(sequence: list[int], stacks: dict[int, int], empty: dict[int, int]) -> tuple[int, int]:
    """(ways to begin, ways to be empty) of a sequence."""
    total, ways = 0, 1
    for item in sequence:
        total += ways * stacks[item]
        ways *= empty[item]
        if not ways or total > MAX_STACKS:
            break
    return total, ways


def _most(
    grammar: Grammar, sequence: list[int], stacks: dict[int, int], empty: dict[int, int]
) -> None:
    """Refuse a sequence that has too many ways to go on at any place in it."""
    ways = 0
    for item in reversed(sequence):
        ways = stacks[item] + empty[item] * ways
        if ways > MAX_STACKS:
            grammar.refuse(f"is ambiguous: a rule can go on in more than {MAX_STACKS} ways")


def _check_growth(grammar: Grammar) -> None:
    """Follow what repeats or recurs for some characters and count in how many ways it is read.

    Time cannot be bounded from outside here: llama.cpp tries every reading of every token in one
    call, so a count that doubles with each character of a long run of spaces never returns.
    """
    probe = Probe(grammar)
    starts = [node for node, (inner, _, _) in grammar.repeats.items() if inner in grammar.choices]
    cyclic = _cyclic(grammar)
    recursive = (node for node in grammar.rules.values() if node in cyclic)
    for start in dict.fromkeys((grammar.rules["root"], *starts, *recursive)):
        probe.follow(start)


def _cyclic(grammar: Grammar) -> set[int]:
    """The nodes that hold themselves, or lie between two such nodes."""
    edges = {node: {item for seq in seqs for item in seq} for node, seqs in grammar.choices.items()}
    edges.update((node, {inner}) for node, (inner, _, _) in grammar.repeats.items())
    left = set(range(grammar.count))
    for _ in range(2):  # what leads nowhere, then what nothing leads to
        behind: dict[int, list[int]] = {}
        for node, items in edges.items():
            for item in items:
                behind.setdefault(item, []).append(node)
        missing = {node: len(edges.get(node, set[int]()) & left) for node in left}
        todo = [node for node in left if not missing[node]]
        while todo:
            node = todo.pop()
            left.discard(node)
            for user in behind.get(node, ()):
                if user in left:
                    missing[user] -= 1
                    if not missing[user]:
                        todo.append(user)
        edges = {node: {user for user in behind.get(node, ()) if user in left} for node in left}
    return left


class Probe:
    """Stacks as llama.cpp has them, each with the number of ways that lead to it.

    A stack is a number: (frame, what is below) in `cells`; 0 is empty. A frame is (node, sequence,
    place) for a sequence, (node, -1, times) for a repetition and (node, -2, 0) for a node.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.work = 0
        self._cells: list[tuple[tuple[int, int, int], int]] = [((0, 0, 0), 0)]
        self._known: dict[tuple[tuple[int, int, int], int], int] = {}
        points = {0}
        for _, ranges in grammar.chars.values():
            for low, high in ranges:
                points |= {low, high + 1}
        self._masks: dict[int, int] = {}
        ordered = sorted(points)
        for node, (negated, ranges) in grammar.chars.items():
            mask = 0
            for low, high in ranges:
                if low <= high:
                    first, last = bisect_left(ordered, low), bisect_left(ordered, high + 1)
                    mask |= (1 << last) - (1 << first)
            self._masks[node] = ((1 << len(ordered)) - 1) & ~mask if negated else mask

    def follow(self, start: int) -> None:
        """From one node on, always by the character that most ways allow."""
        stacks = self._expand({self._cell((start, -2, 0), 0): 1})
        for _ in range(PROBE_CHARS):
            tops: dict[int, int] = {}
            for stack, ways in stacks.items():
                node = self._cells[stack][0][0]
                tops[node] = tops.get(node, 0) + ways
            if not tops:
                return
            bit = self._best(tops)
            stacks = self._expand(
                self._merge(
                    (self._cells[stack][1], ways)
                    for stack, ways in stacks.items()
                    if self._masks[self._cells[stack][0][0]] & bit
                )
            )
            if sum(stacks.values()) > MAX_READINGS or len(stacks) > MAX_PROBE_STACKS:
                self.grammar.refuse("is ambiguous: it can read the same text in too many ways")

    def _best(self, tops: dict[int, int]) -> int:
        """The character, as a bit of the masks, that most ways allow; all but one are left out."""
        best = 0
        for node, _ in sorted(tops.items(), key=lambda item: -item[1]):
            mask = self._masks[node]
            best = (best & mask) or best or mask
        return best & -best

    def _merge(self, pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
        merged: dict[int, int] = {}
        for stack, ways in pairs:
            merged[stack] = merged.get(stack, 0) + ways
        return merged

    def _cell(self, frame: tuple[int, int, int], below: int) -> int:
        key = (frame, below)
        if key not in self._known:
            self._known[key] = len(self._cells)
            self._cells.append(key)
        return self._known[key]

    def _expand(self, todo: dict[int, int]) -> dict[int, int]:
        """Advance until a character is on top; the empty stack, the end, is left out."""
        grammar, found = self.grammar, dict[int, int]()
        while todo:
            self.work += 1
            if self.work > MAX_WORK:
                grammar.refuse("is too large to be judged")
            stack, ways = todo.popitem()
            if not stack:
                continue
            (node, kind, place), below = self._cells[stack]
            if node in grammar.chars:
                found[stack] = found.get(stack, 0) + ways
                continue
            if node in grammar.repeats:
                inner, least, most = grammar.repeats[node]
                done = max(0, place)
                after = min(done + 1, least) if most < 0 else done + 1
                nexts = [below] if done >= least else []
                if most < 0 or done < most:
                    again = below if after == most else self._cell((node, -1, after), below)
                    nexts.append(self._cell((inner, -2, 0), again))
            else:
                sequences = grammar.choices[node]
                if kind == -2:
                    nexts = [
                        self._cell((node, i, 0), below) if s else below
                        for i, s in enumerate(sequences)
                    ]
                else:
                    sequence = sequences[kind]
                    rest = below
                    if place + 1 < len(sequence):
                        rest = self._cell((node, kind, place + 1), below)
                    nexts = [self._cell((sequence[place], -2, 0), rest)]
            for next_stack in nexts:
                todo[next_stack] = todo.get(next_stack, 0) + ways
        return found
