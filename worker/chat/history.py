"""Messages as a template wants them: calls, their results and thoughts in its shape."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from worker.chat import turns
from worker.chat.dialects.prompted import tools_prompt
from worker.chat.message import Call, Message, Tool
from worker.chat.places import PlaceProbe
from worker.chat.probe import call_of, thought_parts

MISSING = "(There is no result of this call.)"
_NINE = re.compile(r"[A-Za-z0-9]{9}")


def pair_calls(messages: Sequence[Message], *, in_order: bool, at_end: bool) -> list[Message]:
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
        mine, strays = _match(calls, results)
        if mine or turn or at_end or place < len(messages):
            order = list(mine) if not in_order else []
            order += [n for n in range(len(calls)) if n not in order]
            found += [_result(calls[n], mine.get(n)) for n in order]
        found += [as_user(stray, " without a call") for stray in strays]
        found += [each for each in turn if each.role != "tool"]
    return found


def _match(
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
        else msgspec.structs.replace(message, content=_result_text(message))
        if shown
        else as_user(message, " without a call")
        for message in messages
    ]


def _result_text(result: Message) -> str:
    content = result.content or ""
    return f"Error: {content}" if result.is_error else content


def _result(call: Call, given: Message | None) -> Message:
    content = MISSING if given is None else _result_text(given)
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


class History:
    def __init__(
        self, probe: PlaceProbe, example: str, past: Callable[[Sequence[Call]], str], *, tells: bool
    ) -> None:
        """
        example  how a call is written, for models whose template does not say it
        past     calls as the model writes them, for templates that show none
        tells    the tools are described in the system part
        """
        self._probe = probe
        self._example = example
        self._past = past
        self._tells = tells

    def messages(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[dict[str, Any]]:
        """The messages as the template wants them."""
        probe = self._probe
        for message in messages:
            if message.calls or message.role == "tool":
                messages = self._with_calls(messages)
                break
        if tools and self._tells:
            messages = turns.add_to_system(messages, tools_prompt(tools, self._example))
        messages = self._in_turns(messages)
        made = [self._plain(message) for message in messages]
        if probe.thinks_in_parts:
            for place, message in enumerate(messages):
                if message.thought:
                    made[place] |= thought_parts(message.thought, message.content)
        return made

    def _with_calls(self, messages: Sequence[Message]) -> list[Message]:
        """Calls and results as the template shows them."""
        probe = self._probe
        if not any(message.calls for message in messages):
            return without_calls(messages, shown=probe.knows_uncalled_results)
        messages = pair_calls(
            messages, in_order=not probe.tells_results_apart, at_end=not probe.keeps_last_call
        )
        if probe.wants_short_ids:
            messages = with_short_ids(messages)
        found: list[Message] = []
        lone = False  # the calls before were written into the content
        last = max((n for n, each in enumerate(messages) if self._answers(each)), default=-1)
        for place, message in enumerate(messages):
            if message.calls:
                lone = not self._is_shown(message)
                if not lone and found and not self._joins(found[-1]):
                    found.append(turns.GO_ON)
                written = self._with_written_calls(message)
                found += written if lone else self._apart(message, is_old=place < last)
            elif message.role == "tool" and not (
                probe.knows_lone_results if lone else probe.knows_results
            ):
                found.append(as_user(message))
            else:
                found.append(message)
        return found if probe.keeps_several else list(_one_by_one(found))

    def _is_shown(self, message: Message) -> bool:
        """Whether the template shows its calls, all of them and all that stands beside them."""
        probe = self._probe
        if probe.shape is None:
            return False
        if message.content and not (probe.keeps_text or probe.keeps_text_before):
            return False
        return (
            probe.shape.is_text
            or probe.keeps_odd
            or all(call.named is not None for call in message.calls)
        )

    def _answers(self, message: Message) -> bool:
        """Whether it comes to the template as an answer without calls."""
        return message.role == "assistant" and not (message.calls and self._is_shown(message))

    def _joins(self, before: Message) -> bool:
        """Whether calls may follow this message: a text that is joined with them may be lost."""
        probe = self._probe
        keeps = probe.keeps_text or probe.keeps_neighbours["assistant"]
        return keeps or before.role != "assistant" or not before.content

    def _apart(self, message: Message, *, is_old: bool) -> list[Message]:
        """The text beside calls as a message before them, where the template does not show both.

        is_old  an answer without calls follows
        """
        probe = self._probe
        keeps = probe.keeps_text and (probe.keeps_old_text or not is_old)
        if not message.content or keeps:
            return [message]
        before = Message(role=message.role, content=message.content, name=message.name)
        between = () if probe.keeps_neighbours["assistant"] else (turns.GO_ON,)
        return [before, *between, msgspec.structs.replace(message, content=None)]

    def _in_turns(self, messages: Sequence[Message]) -> list[Message]:
        """The roles in an order that the template takes."""
        probe, found = self._probe, list(messages)
        roles = [message.role for message in messages]
        has_user = "user" in roles
        if "system" in roles:
            first = not probe.knows_system or not (has_user or probe.knows_system_alone)
            first = first or not (probe.knows_system_to_the_end or self._ends_with_user(messages))
            found = turns.without_system(messages, first=first, later=not probe.knows_later_system)
        if not probe.keeps_empty_answers:
            found = [message for message in found if not _is_empty(message)]
        if not (probe.keeps_early_answers and (has_user or probe.keeps_lone_answers)):
            found = turns.with_user_first(found)
        if not probe.keeps_user_after_result:
            found = turns.after_results(found)
        plain = probe.knows_results and probe.knows_system
        for role, keeps in probe.keeps_neighbours.items():
            if len(found) > 1 and (not keeps or (role == "user" and not plain)):
                found = turns.join_turns(found, role)
        return found

    def _ends_with_user(self, messages: Sequence[Message]) -> bool:
        """Whether a user's message stays the last one."""
        roles = [message.role for message in messages if message.role != "system"]
        before = next((role for role in reversed(roles) if role != "user"), None)
        joins = before == "tool" and not self._probe.keeps_user_after_result
        return roles[-1:] == ["user"] and not joins

    def _plain(self, message: Message) -> dict[str, Any]:
        """What is not there is not defined in the template."""
        found: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.name is not None:
            found["name"] = message.name
        if message.thought and (field := self._probe.thought_field):
            found[field] = message.thought
            if message.calls and message.content and self._probe.parts_thought:
                found[field] += f"\n\n{message.content}"
                found["content"] = None
        if message.calls:
            found["tool_calls"] = [self._call_of(call) for call in message.calls]
            shape = self._probe.shape
            if shape is not None and not found["content"]:
                found["content"] = shape.content
        elif message.content is None:
            found["content"] = ""
        if message.call_id is not None:
            found["tool_call_id"] = message.call_id
        return found

    def _with_written_calls(self, message: Message) -> list[Message]:
        parts = (message.content, self._past(message.calls))
        content = "\n".join(part for part in parts if part)
        return [msgspec.structs.replace(message, content=content, calls=())]

    def _call_of(self, call: Call) -> dict[str, Any]:
        shape = self._probe.shape
        text = call.arguments.strip() or "{}"
        if shape is not None and shape.is_text:
            return call_of(call.name, text, call.id)
        named = call.named
        return call_of(call.name, text if named is None else named, call.id)


def _is_empty(message: Message) -> bool:
    said = message.content or message.thought or message.calls
    return message.role == "assistant" and not said


def _one_by_one(messages: Sequence[Message]) -> Iterator[Message]:
    """Several calls of one message become messages of one call, each before its result."""
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if len(message.calls) < 2:
            yield message
            continue
        results: list[Message] = []
        while place < len(messages) and messages[place].role == "tool":
            results.append(messages[place])
            place += 1
        for number, call in enumerate(message.calls):
            if number:
                yield Message(role=message.role, calls=(call,))
            else:
                yield msgspec.structs.replace(message, calls=(call,))
            mine = [result for result in results if result.call_id == call.id][:1] or results[:1]
            for result in mine:
                results.remove(result)
                yield result
        yield from results
