"""Calls as JSON objects that name the tool and its arguments, alone, in a row or in a list.

{"name": "sky", "arguments": {"at": "Rome"}}
[{"id": "1", "name": "sky", "parameters": {}}, {"type": "function", "function": {...}}]
"""

from __future__ import annotations

from collections.abc import Sequence

from worker.chat.reading.calls import Calls
from worker.chat.reading.json_text import call_in_json, json_string, json_value, whole_call
from worker.chat.reading.source import DamagedError, Steps, TextSource

NAMES = ("name", "tool_name", "function")
ARGUMENTS = ("arguments", "parameters")


def call_objects(
    source: TextSource, calls: Calls, closes: Sequence[str] = (), *, is_strict: bool = False
) -> Steps[None]:
    """One or more calls, and the text that closes them where it stands there.

    is_strict: what has no arguments is no call. Raises DamagedError.
    """
    yield from source.space()
    listed = yield from source.one_of("[")
    while True:
        yield from source.space()
        yield from _call_object(source, calls, is_strict=is_strict)
        calls.settle()
        yield from source.space()
        if listed:
            if (yield from source.expect(",", "]")) == "]":
                break
        else:
            yield from source.one_of(";", ",")
            yield from source.space()
            if (yield from source.peek()) != "{":
                break
    yield from source.space()
    yield from source.one_of(*closes)


def _call_object(source: TextSource, calls: Calls, *, is_strict: bool) -> Steps[None]:
    yield from source.expect("{")
    name = call_id = kept = ""
    is_told = False
    while True:
        yield from source.space()
        if (yield from source.one_of("}")) is not None:
            break
        key = yield from json_string(source)
        yield from source.space()
        yield from source.expect(":")
        yield from source.space()
        first = yield from source.peek()
        if key == "function" and first == "{" and not is_told:
            yield from _call_object(source, calls, is_strict=is_strict)
            is_told = True
        elif key in NAMES and first == '"' and not name:
            source.skip(1)
            name, _ = yield from source.until('"', fits=calls.may_be)
            calls.check(name)
        elif key in ARGUMENTS and name and first == "{" and not is_told:
            yield from call_in_json(source, calls, name, call_id)
            is_told = True
        elif key in ARGUMENTS:
            kept = yield from json_value(source)
        elif key == "id" and first == '"':
            call_id = yield from json_string(source)
        else:
            yield from json_value(source)
        yield from source.space()
        if (yield from source.expect(",", "}")) == "}":
            break
    if is_told:
        return
    if not name or (is_strict and not kept):
        raise DamagedError
    whole_call(calls, name, kept or "{}", call_id)
