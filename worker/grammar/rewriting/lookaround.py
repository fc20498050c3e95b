"""Patterns that look ahead or behind, as several that do not, of which a text matches each."""

from __future__ import annotations

import re

_LOOKS = re.compile(r"(?<!\\)(?:\\\\)*\(\?(?:=|!|<=|<!)")
_BACK = re.compile(r"(?<!\\)(?:\\\\)*\\(?:[1-9]|k<)")
_ATOM = r"(?:\\[^1-9kbBAzZpPuUxc]|\[(?:\\.|[^\]\\])+\]|[^\\()\[\]{}^$.|?*+])"
_ATOMS = re.compile(rf"({_ATOM}+)(\$?)")
_ALL_OF_ONE = re.compile(rf"\^?({_ATOM})([*+])\$")
_BEHIND = re.compile(rf"\(\?<([=!])({_ATOM})\)\$?$")
_REST = "(?s:.*)"
_MOST = 4096  # characters of a pattern that is taken apart


def is_beyond(pattern: str) -> bool:
    """Whether it looks around, or back at what it matched: no automaton does that."""
    return bool(_LOOKS.search(pattern) or _BACK.search(pattern))


def conjunction(pattern: str) -> list[str] | None:
    """Patterns that all hold for just the texts that match `pattern`; None: not known.

    Known are looks ahead at the beginning and one look behind, at one character, at the end. What
    must not follow may be characters in a row, a character anywhere, or one kind of characters to
    the end.
    """
    if not is_beyond(pattern):
        return [pattern]
    if len(pattern) > _MOST or not pattern.startswith("^") or len(_split(pattern)) > 1:
        return None
    rest, found = pattern[1:], list[str]()
    while rest.startswith(("(?=", "(?!")):
        end = _end(rest)
        if end is None:
            return None
        inner = rest[3 : end - 1]
        wanted = [f"^(?:{inner})"] if rest[2] == "=" else _complements(inner)
        if wanted is None or (rest[2] == "=" and "$" in inner):
            wanted = [f"^(?:{inner[:-1]})$"] if wanted and _ends_once(inner) else None
        if wanted is None:
            return None
        found += wanted
        rest = rest[end:]
    if behind := _BEHIND.search(rest):
        is_at_end = rest.endswith("$")
        if not is_at_end:
            return None
        kind, atom = behind.groups()
        found.append(f"{atom}$" if kind == "=" else f"^(?:|{_REST}{_other(atom)})$")
        rest = rest[: behind.start()] + "$"
    if rest:
        found.append("^" + rest)
    return None if any(map(is_beyond, found)) else found


def _ends_once(inner: str) -> bool:
    return inner.endswith("$") and "$" not in inner[:-1] and len(_split(inner)) == 1


def _complements(inner: str) -> list[str] | None:
    """Patterns of the texts that do not begin with a match of `inner`."""
    found: list[str] = []
    for part in _split(inner):
        made = _complement(part)
        if made is None:
            return None
        found.append(made)
    return found


def _complement(part: str) -> str | None:
    if part == "$":
        return "(?s:.)"
    if every := _ALL_OF_ONE.fullmatch(part):
        some = _other(every[1])
        return some if every[2] == "*" else f"^(?:|{_REST}{some}{_REST})$"
    if part.startswith(".*"):
        return _never(re.findall(_ATOM, part[2:]), part[2:])
    row = _ATOMS.fullmatch(part)
    if row is None:
        return None
    after = "(?s:.)+" if row[2] else None  # what may stand behind all of them
    for atom in reversed(re.findall(_ATOM, row[1])):
        whole = "" if after is None else f"|{atom}(?:{after})"
        after = f"|{_other(atom)}{_REST}{whole}"
    return f"^(?:{after})$"


def _never(atoms: list[str], text: str) -> str | None:
    """Texts in which these characters never follow each other."""
    if "".join(atoms) != text or not 0 < len(atoms) < 3:
        return None
    first, last = atoms[0], atoms[-1]
    if len(atoms) == 1:
        return f"^{_other(first)}*$"
    if first == last:
        return f"^(?:{first}?{_other(first)})*{first}?$"
    if not (_is_literal(first) and _is_literal(last)):
        return None
    return f"^(?:{_other(first)}|{first}+[^{_inside(first)}{_inside(last)}])*{first}*$"


def _is_literal(atom: str) -> bool:
    return len(atom) == 1 or (atom[0] == "\\" and not atom[1].isalnum())


def _inside(atom: str) -> str:
    return atom if atom[0] == "\\" or atom.isalnum() else f"\\{atom}"


def _other(atom: str) -> str:
    """Any one character that `atom` does not match."""
    if atom[0] == "[":
        return f"[{atom[2:]}" if atom[1] == "^" else f"[^{atom[1:]}"
    if atom[0] == "\\" and atom[1] in "sSdDwW":
        return "\\" + atom[1].swapcase()
    return f"[^{_inside(atom)}]"


def _end(text: str) -> int | None:
    """Where the group ends with which it begins."""
    depth, place = 0, 0
    while place < len(text):
        char = text[place]
        if char == "\\":
            place += 2
            continue
        if char == "[":
            closed = re.match(r"\[\^?\]?(?:\\.|[^\]\\])*\]", text[place:])
            if closed is None:
                return None
            place += closed.end()
            continue
        depth += (char == "(") - (char == ")")
        place += 1
        if depth == 0:
            return place
    return None


def _split(text: str) -> list[str]:
    """At each `|` that is in no group and no class."""
    parts, place, begun = list[str](), 0, 0
    while place < len(text):
        char = text[place]
        if char == "|":
            parts.append(text[begun:place])
            begun = place + 1
        if char in "([":
            length = _end(text[place:]) if char == "(" else None
            if char == "[":
                closed = re.match(r"\[\^?\]?(?:\\.|[^\]\\])*\]", text[place:])
                length = closed.end() if closed else None
            place += length or 1
        else:
            place += 2 if char == "\\" else 1
    return [*parts, text[begun:]]
