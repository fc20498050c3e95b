"""In how many ways a grammar reads the same text. With too many llama.cpp never ends."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from worker.grammar.gbnf import Grammar
from worker.limits import JUDGING, PLACES, READINGS

PROBE_CHARS = 32  # about the length of the longest tokens


def check_readings(grammar: Grammar) -> None:
    """Refuse a grammar that reads a text of some characters in too many ways.

    Each repetition and each recursive rule is followed for PROBE_CHARS characters. llama.cpp tries
    every reading of every token in one call, which cannot be interrupted: where the number of
    readings doubles with each space, the call for a token of many spaces never returns.
    """
    probe = Probe(grammar)
    starts = [node for node, (inner, _, _) in grammar.repeats.items() if inner in grammar.choices]
    cyclic = _cyclic(grammar)
    recursive = (node for node in grammar.rules.values() if node in cyclic)
    for start in dict.fromkeys((grammar.rules["root"], *starts, *recursive)):
        probe.follow(start)


def _cyclic(grammar: Grammar) -> set[int]:
    """The nodes that contain themselves, and those between two such nodes."""
    edges = {node: {item for seq in seqs for item in seq} for node, seqs in grammar.choices.items()}
    edges.update((node, {inner}) for node, (inner, _, _) in grammar.repeats.items())
    left = set(range(grammar.count))
    for _ in range(2):  # takes away nodes that lead nowhere, then nodes that nothing leads to
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
    """Follows a grammar as llama.cpp does, and counts in how many ways each stack is reached.

    A stack is a number, the index in `_cells` of (frame on top, stack below); 0 is the empty stack.
    A frame is (node, sequence, place) inside of a sequence, (node, -1, times) inside of a
    repetition, and (node, -2, 0) for a node that has not begun.
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
        """Start at one node; each step takes the character that the most ways allow."""
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
            if sum(stacks.values()) > READINGS.most or len(stacks) > PLACES.most:
                self.grammar.refuse("is ambiguous: it can read the same text in too many ways")

    def _best(self, tops: dict[int, int]) -> int:
        """The character that the most ways allow, as one bit of the masks."""
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
        """Advance all stacks until a character is on top; those that reach the end are left out."""
        grammar, found = self.grammar, dict[int, int]()
        while todo:
            self.work += 1
            if self.work > JUDGING.most:
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
