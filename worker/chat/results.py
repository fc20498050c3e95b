"""Tools' results and the calls that they answer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

import msgspec

from worker.chat.message import Call, Message

MISSING = "(There is no result of this call.)"
_NINE = re.compile(r"[A-Za-z0-9]{9}")


def paired(messages: Sequence[Message], *, in_order: bool, at_end: bool) -> list[Message]:
    """Each call is followed by its result, which has its id and its name.

    in_order  the results stand in the calls' order; else as they came, those missing last
    at_end    also calls that nothing follows have results

    A result without an id takes the first open call of its name, or the first open one. What is
    missing is said in a result, where the conversation goes on. A result of no call is the user's.
    An error says so.
    """
    found: list[Message] = []
    place, count = 0, 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if message.role == "tool":
            found.append(as_user(message, " without a call"))
        if not message.calls:
            found += [message] if message.role != "tool" else []
            continue
        calls: list[Call] = []
        for call in message.calls:  # some templates take no other id than nine letters and digits
            calls.append(call if call.id else msgspec.structs.replace(call, id=f"call{count:05}"))
            count += 1
        found.append(msgspec.structs.replace(message, calls=tuple(calls)))
        end = place
        while end < len(messages) and messages[end].role != "assistant":
            end += 1
        turn = messages[place:end]
        place = end
        results = [each for each in turn if each.role == "tool"]
        mine, strays = _matched(calls, results)
        if mine or turn or at_end or place < len(messages):
            order = list(mine) if not in_order else []
            order += [n for n in range(len(calls)) if n not in order]
            found += [_result(calls[n], mine.get(n)) for n in order]
        found += [as_user(stray, " without a call") for stray in strays]
        found += [each for each in turn if each.role != "tool"]
    return found


def _matched(
    calls: Sequence[Call], results: Iterable[Message]
) -> tuple[dict[int, Message], list[Message]]:
    """The results by the places of their calls, in the order in which they came; the others."""
    found: dict[int, Message] = {}
    strays: list[Message] = []
    waiting: list[Message] = []
    ids = {call.id: number for number, call in reversed(list(enumerate(calls)))}
    for result in results:
        number = ids.get(result.call_id) if result.call_id else None
        if number is None:
            (strays if result.call_id else waiting).append(result)
        elif number in found:  # one that came in pieces
            first = found[number]
            content = "\n\n".join(filter(None, (first.content, result.content)))
            found[number] = msgspec.structs.replace(first, content=content)
        else:
            found[number] = result
    for result in waiting:
        free = [number for number in range(len(calls)) if number not in found]
        named = [number for number in free if result.name in (None, calls[number].name)]
        if named or (free and result.name is None):
            found[(named or free)[0]] = result
        else:
            strays.append(result)
    return found, strays


def without_calls(messages: Iterable[Message], *, shown: bool) -> list[Message]:
    """Results in a conversation in which nothing was called: none can take another's place.

    shown  the template has a turn for them; else they are the user's
    """
    return [
        message
        if message.role != "tool"
        else msgspec.structs.replace(message, content=_said(message))
        if shown
        else as_user(message, " without a call")
        for message in messages
    ]


def _said(result: Message) -> str:
    content = result.content or ""
    return f"Error: {content}" if result.is_error else content


def _result(call: Call, given: Message | None) -> Message:
    content = MISSING if given is None else _said(given)
    name = given.name if given is not None and given.name else call.name
    return Message(role="tool", content=content, call_id=call.id, name=name)


def as_user(message: Message, why: str = "") -> Message:
    named = f" of {message.name}" if message.name else ""
    told = "Error" if message.is_error else "Result"
    return Message(role="user", content=f"{told}{named}{why}:\n{message.content or ''}")


def with_short_ids(messages: Sequence[Message]) -> list[Message]:
    """Ids of nine letters and digits; the same id always becomes the same."""
    return [
        msgspec.structs.replace(
            message,
            calls=tuple(
                msgspec.structs.replace(call, id=_short(call.id)) for call in message.calls
            ),
            call_id=message.call_id and _short(message.call_id),
        )
        for message in messages
    ]


def _short(text: str) -> str:
    return text if _NINE.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()[:9]
