"""JSON that is checked while it is written, and passed on as it is."""

from __future__ import annotations

import json
import re
from typing import Any, cast

from worker.chat.reading.calls import Calls
from worker.chat.reading.source import DamagedError, Steps, TextSource

MAX_DEPTH = 200  # of objects and lists in each other

_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPE_SO_FAR = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_WORD = re.compile(r"[-+.0-9A-Za-z]*")
_WORD_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_SPACE = re.compile(r"[ \t\r\n]*")
_MAX_WORD = 512
_LOST = "\\ufffd"  # instead of half a surrogate pair, which many readers of JSON refuse


class JsonText:
    """Checks a JSON value as it comes. A raw control character in a string becomes an escape, as
    models write line ends, and half a surrogate pair U+FFFD; all else stays as it is written.

    is_done     the value is whole; of a number that is known once something else follows
    is_damaged  what comes next makes it no JSON
    """

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._state = "value"
        self._word = ""
        self._escape = ""
        self._half = ""  # the first escape of a surrogate pair, held back
        self.is_done = self.is_damaged = False

    def take(self, text: str) -> tuple[str, int]:
        """(what to pass on, how much of `text` was read)"""
        parts: list[str] = []
        place = 0
        try:
            while place < len(text) and not self.is_done:
                found, read = self._step(text, place)
                parts.append(found)
                place += read
        except DamagedError:
            self.is_damaged = True
        return "".join(parts), place

    def end(self) -> None:
        """Nothing follows. Raises DamagedError where the value is not whole."""
        if self._state == "word" and not self._stack:
            self._end_word()
        if not self.is_done:
            raise DamagedError

    def _step(self, text: str, place: int) -> tuple[str, int]:
        if self._state in ("string", "name"):
            return self._in_string(text, place)
        if self._state == "word":
            run = _WORD.match(text, place, place + _MAX_WORD - len(self._word))
            assert run is not None
            self._word += run[0]
            if not run[0]:
                self._end_word()
            return run[0], len(run[0])
        run = _SPACE.match(text, place)
        if run is not None and run[0]:
            return run[0], len(run[0])
        self._at(text[place])
        return ("", 0) if self._state == "word" else (text[place], 1)

    def _in_string(self, text: str, place: int) -> tuple[str, int]:
        if self._escape:
            self._escape += text[place]
            if _ESCAPE.fullmatch(self._escape):
                return self._end_escape(), 1
            if not _ESCAPE_SO_FAR.fullmatch(self._escape):
                raise DamagedError
            return "", 1
        char = text[place]
        if self._half and char != "\\":
            self._half = ""
            return _LOST, 0
        run = _PLAIN.match(text, place)
        assert run is not None
        if run[0]:
            return run[0], len(run[0])
        if char == '"':
            if self._state == "name":
                self._state = "colon"
            else:
                self._end_value()
        elif char == "\\":
            self._escape = char
            return "", 1
        else:
            return json.dumps(char)[1:-1], 1
        return char, 1

    def _end_escape(self) -> str:
        """The escape, as it is to be passed on; the first half of a pair waits for the second."""
        escape, self._escape = self._escape, ""
        half, self._half = self._half, ""
        code = int(escape[2:] or "0", 16)
        if 0xDC00 <= code <= 0xDFFF:
            return half + escape if half else _LOST
        lost = _LOST if half else ""
        if 0xD800 <= code <= 0xDBFF:
            self._half = escape
            return lost
        return lost + escape

    def _at(self, char: str) -> None:
        state = self._state
        if state in ("value", "first value") and char in "{[":
            self._stack.append(char)
            if len(self._stack) > MAX_DEPTH:
                raise DamagedError
            self._state = "first name" if char == "{" else "first value"
        elif state in ("value", "first value") and char == '"':
            self._state = "string"
        elif (state == "first value" and char == "]") or (state == "first name" and char == "}"):
            self._close()
        elif state in ("value", "first value"):
            self._word, self._state = "", "word"
            if not (char == "-" or (char.isascii() and char.isalnum())):
                raise DamagedError
        elif state in ("first name", "next name") and char == '"':
            self._state = "name"
        elif state == "colon" and char == ":":
            self._state = "value"
        elif state == "after" and char == ",":
            self._state = "next name" if self._stack[-1] == "{" else "value"
        elif state == "after" and char == ("}" if self._stack[-1] == "{" else "]"):
            self._close()
        else:
            raise DamagedError

    def _end_word(self) -> None:
        if not _WORD_WHOLE.fullmatch(self._word):
            raise DamagedError
        self._end_value()

    def _close(self) -> None:
        self._stack.pop()
        self._end_value()

    def _end_value(self) -> None:
        self._state = "after"
        self.is_done = not self._stack


def check_json(text: str) -> str:
    """The text, which is one JSON value, as `JsonText` passes it on. Raises DamagedError."""
    checked = JsonText()
    found, read = checked.take(text)
    if not checked.is_done:
        checked.end()
    if text[read:].strip():
        raise DamagedError
    return found


def json_value(source: TextSource) -> Steps[str]:
    """The next JSON value, as text. Raises DamagedError."""
    checked = JsonText()
    parts: list[str] = []
    while not checked.is_done:
        part, count = checked.take(source.rest)
        source.skip(count)
        parts.append(part)
        if checked.is_done:
            break
        if checked.is_damaged:
            raise DamagedError
        if source.is_ended:
            checked.end()
        else:
            yield
    return "".join(parts)


def json_string(source: TextSource) -> Steps[str]:
    """The next value, which is a string, decoded. Raises DamagedError."""
    if (yield from source.peek()) != '"':
        raise DamagedError
    text = yield from json_value(source)
    return json.loads(text)


def call_in_json(source: TextSource, calls: Calls, name: str, call_id: str = "") -> Steps[None]:
    """A call whose arguments come next, a JSON object. Raises DamagedError."""
    calls.check(name)
    if (yield from source.peek()) != "{":
        raise DamagedError
    calls.begin(name, call_id)
    checked = JsonText()
    while True:
        part, count = checked.take(source.rest)
        source.skip(count)
        calls.add(part)
        if checked.is_done:
            break
        if source.is_ended or checked.is_damaged:
            raise DamagedError
        yield
    calls.end()


def whole_call(calls: Calls, name: str, arguments: str, call_id: str = "") -> None:
    """A call whose arguments were read: an object, null, or a string that holds an object.

    Raises DamagedError.
    """
    value: Any = json.loads(arguments)
    if isinstance(value, str):
        arguments = check_json(value.strip() or "{}")
        value = json.loads(arguments)
    if value is None:
        value, arguments = cast("dict[str, Any]", {}), "{}"
    if not isinstance(value, dict):
        raise DamagedError
    calls.begin(name, call_id)
    calls.add(arguments)
    calls.end()
