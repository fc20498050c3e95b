"""Tool calls in a history, as chats and Ollama's clients write them."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.api.common.chat.notes import note_of, written
from worker.api.common.chat.parts import MessageContent
from worker.chat.message import Call

# A name or an id beside what has a form; what is no text becomes one.
Spelled = str | int | float | bool | None


class CalledFunction(msgspec.Struct):
    """What was called; `arguments` is JSON text, and clients of other servers send the value.

    input, args, parameters
           in place of arguments
    """

    name: MessageContent = None
    arguments: Any = None
    input: Any = None
    args: Any = None
    parameters: Any = None


class PastCall(CalledFunction):
    """A tool call in the history: what was called stands in it, or one level deeper."""

    id: MessageContent = None
    function: CalledFunction | list[Any] | Spelled = None
    custom: CalledFunction | list[Any] | Spelled = None

    @property
    def call(self) -> Call:
        """In its neutral form."""
        inner = (self.function, self.custom)
        found = next((each for each in inner if isinstance(each, CalledFunction)), self)
        named = (found.name, self.name, *(each for each in inner if isinstance(each, str)))
        forms = (found.arguments, found.input, found.args, found.parameters)
        forms += (self.arguments, self.input, self.args, self.parameters)
        given = next((form for form in forms if form is not None), None)
        name = next(filter(None, map(spelled, named)), None)
        return Call(spelled(self.id) or "", called_name(name), arguments_of(given))


# Of one message; null, nothing, [], {} and "" are none.
PastCalls = list[PastCall | list[Any] | Spelled] | PastCall | Spelled


def calls_of(given: PastCalls) -> tuple[tuple[Call, ...], list[str]]:
    """The calls, and notes on what cannot be read as one."""
    each = given if isinstance(given, list) else [given] if given else []
    calls = tuple(call.call for call in each if isinstance(call, PastCall) and call != PastCall())
    odd = (call for call in each if call and not isinstance(call, PastCall))
    return calls, [note_of("tool call", {"value": call}) for call in odd]


def spelled(given: Any) -> str | None:
    """A name or an id as text; None: there is none."""
    return None if given in (None, "", [], {}) else written(given)


def called_name(given: Any) -> str:
    """What was called; a call without a name in a history is one all the same."""
    return spelled(given) or "unknown"


def arguments_of(given: Any) -> str:
    """A past call's arguments as JSON text, as they were written where they are text."""
    if isinstance(given, str):
        return given
    return written({} if given is None else given)
