"""GBNF, the text of a grammar, read into a graph.

A node of the graph is a character class, a choice of sequences of nodes, or a repetition of one
node. Each rule, group and literal is a choice. Nothing here recurses on the input.
"""

from __future__ import annotations

import re
from typing import NoReturn

from worker.errors import RequestError
from worker.limits import ELEMENTS, REPEATS

_ESCAPE = r'\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[trn\\"\[\]-])'
_CHAR = re.compile(rf"{_ESCAPE}|[^\\]", re.DOTALL)
_LITERAL = re.compile(rf'"((?:{_ESCAPE}|[^"\\])*)"')
_CLASS = re.compile(rf"\[(\^?)((?:{_ESCAPE}|[^\]\\])+)\]")
_NAME = re.compile(r"[a-zA-Z0-9-]+")
_TOKEN = re.compile(r"!?<[^>]+>")
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_REPEAT = re.compile(r"([*+?])|\{\s*([0-9]{1,9})\s*(?:(,)\s*([0-9]{1,9})?\s*)?\}")
_SIMPLE = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}
_PLAIN = {"t": "\t", "r": "\r", "n": "\n"}

# What UTF-8 can write: all but the halves of surrogate pairs.
_WRITTEN = ((0, 0xD7FF), (0xE000, 0x10FFFF))

Ranges = tuple[tuple[int, int], ...]


class Grammar:
    """A grammar's nodes, by number. A node is in exactly one of the three tables.

    chars    node -> (is negated, ranges)
    choices  node -> sequences of nodes
    repeats  node -> (node, least, most); most is -1 where there is no end
    """

    def __init__(self, text: str, param: str) -> None:
        self.param = param
        self.count = 0
        self.chars: dict[int, tuple[bool, Ranges]] = {}
        self.choices: dict[int, list[list[int]]] = {}
        self.repeats: dict[int, tuple[int, int, int]] = {}
        self.rules: dict[str, int] = {}
        self.done: list[int] = []  # choices and repeats, each after what is written inside it
        self._text = text
        self._known: dict[tuple[bool, Ranges], int] = {}
        self._parse()
        for name, node in self.rules.items():
            if node not in self.choices:
                self.refuse(f"uses a rule {name[:40]!r} that it does not define")
        if "root" not in self.rules:
            self.refuse("has no rule named root")

    def refuse(self, why: str) -> NoReturn:
        """Raise RequestError with one sentence."""
        raise RequestError(f"The grammar of {self.param} {why}.", param=self.param)

    def _node(self) -> int:
        self.count += 1
        return self.count - 1

    def _rule(self, name: str) -> int:
        if name not in self.rules:
            self.rules[name] = self._node()
        return self.rules[name]

    def _terminal(self, negated: bool, *ranges: tuple[int, int]) -> int:
        key = (negated, ranges)
        if key not in self._known:
            self._known[key] = self._node()
            self.chars[self._known[key]] = key
        return self._known[key]

    def _skip(self, pattern: re.Pattern[str], at: int) -> int:
        found = pattern.match(self._text, at)
        return found.end() if found else at

    def _parse(self) -> None:
        at = self._skip(_LINES, 0)
        while at < len(self._text):
            found = _NAME.match(self._text, at)
            if not found:
                self._stop(at)
            at = self._skip(_SPACE, found.end())
            if not self._text.startswith("::=", at):
                self._stop(at)
            rule = self._rule(found[0])
            if rule in self.choices:
                self.refuse(f"defines the rule {found[0][:40]!r} twice")
            at = self._skip(_LINES, self._alternatives(rule, self._skip(_LINES, at + 3)))

    def _stop(self, at: int) -> NoReturn:
        line = self._text.count("\n", 0, at) + 1
        if at >= len(self._text):
            self.refuse(f"ends too early, in line {line}: something must follow")
        self.refuse(f"does not parse at line {line}: {self._text[at : at + 20]!r}")

    def _alternatives(self, rule: int, at: int) -> int:
        """Read the body of `rule`, which begins at `at`; returns where its line ends."""
        text, choices = self._text, self.choices
        open_nodes, choices[rule] = [rule], [[]]
        while at < len(text):
            sequence = choices[open_nodes[-1]][-1]
            char, end = text[at], at + 1
            if char == "(":
                open_nodes.append(self._node())
                choices[open_nodes[-1]] = [[]]
                at = self._skip(_LINES, end)
                continue
            if char == "|":
                choices[open_nodes[-1]].append([])
                at = self._skip(_LINES, end)
                continue
            if char == ")" and len(open_nodes) > 1:
                self.done.append(open_nodes.pop())
                choices[open_nodes[-1]][-1].append(self.done[-1])
            elif char == ".":
                sequence.append(self._terminal(True))
            elif found := _REPEAT.match(text, at):
                if not sequence:
                    self._stop(at)
                sequence[-1], end = self._repeat(sequence[-1], found), found.end()
            elif found := _LITERAL.match(text, at):
                sequence.append(self._literal(found[1]))
                end = found.end()
            elif found := _CLASS.match(text, at):
                sequence.append(self._class(found))
                end = found.end()
            elif found := _TOKEN.match(text, at):
                self.refuse(f"names a token, {found[0][:40]!r}, where it may name characters only")
            elif found := _NAME.match(text, at):
                sequence.append(self._rule(found[0]))
                end = found.end()
            elif char in "\r\n" and len(open_nodes) == 1:
                break
            else:
                self._stop(at)
            at = self._skip(_LINES if len(open_nodes) > 1 else _SPACE, end)
        if len(open_nodes) > 1:
            self._stop(at)
        self.done.append(rule)
        return at

    def _literal(self, text: str) -> int:
        codes = [_code(char) for char in _CHAR.findall(text)]
        node = self._node()
        self.choices[node] = [[self._terminal(False, (code, code)) for code in codes]]
        self.done.append(node)
        return node

    def _class(self, found: re.Match[str]) -> int:
        chars, ranges, i = _CHAR.findall(found[2]), list[tuple[int, int]](), 0
        while i < len(chars):
            is_range = chars[i + 1 : i + 2] == ["-"] and i + 2 < len(chars)
            ranges.append((_code(chars[i]), _code(chars[i + 2 if is_range else i])))
            i += 3 if is_range else 1
        if not characters(bool(found[1]), tuple(ranges)):
            self.refuse(f"has a class that holds no character: {found[0][:40]!r}")
        return self._terminal(bool(found[1]), *ranges)

    def _repeat(self, inner: int, found: re.Match[str]) -> int:
        if found[1]:
            least, most = _SIMPLE[found[1]]
        else:
            least = int(found[2])
            most = least if not found[3] else int(found[4]) if found[4] else -1
        if max(least, most) > REPEATS.most:
            self.refuse(f"repeats something more than {REPEATS.most} times")
        if -1 < most < least:
            self.refuse(f"asks for at least {least} and at most {most} of something")
        node = self._node()
        self.repeats[node] = (inner, least, most)
        self.done.append(node)
        return node


def characters(negated: bool, ranges: Ranges) -> list[tuple[int, int]]:
    """The characters of a class, from the first to the last of each run; empty: there are none."""
    found: list[tuple[int, int]] = []
    for begin, end in _WRITTEN:
        start = begin
        for first, last in sorted((max(low, begin), min(high, end)) for low, high in ranges):
            if last < first:
                continue
            if negated and start < first:
                found.append((start, first - 1))
            if not negated:
                found.append((first, last))
            start = max(start, last + 1)
        if negated and start <= end:
            found.append((start, end))
    return found


def _code(char: str) -> int:
    if len(char) == 1:
        return ord(char)
    return int(char[2:], 16) if char[1] in "xuU" else ord(_PLAIN.get(char[1], char[1]))


def parse_gbnf(text: str, param: str) -> Grammar:
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
