"""Ollama's messages in their neutral form."""

from __future__ import annotations

import msgspec

from worker.api.common.chat.parts import check_pictures, newest, text_of
from worker.api.common.chat.past_message import message_of, pictures_of, role_of
from worker.api.ollama.schemas import OllamaChatRequest
from worker.chat.message import Call, Message

PARAM = "messages"


def messages_of(body: OllamaChatRequest) -> tuple[Message, ...]:
    """Raises RequestError that names the place.

    Calls without an id get one, and results are given to the calls before them: by id, by the
    tool's name, or in their order.
    """
    found: list[Message] = []
    open_calls: list[Call] = []
    count = 0
    given = body.messages or []
    if given and (system := text_of(body.system)):
        found.append(Message(role="system", content=system))
    told = [(place, each, role_of(each.role, each)) for place, each in enumerate(given) if each]
    first = newest([role for _, _, role in told])
    for number, (place, message, role) in enumerate(told):
        where = f"{PARAM}[{place}]"
        if number >= first and role == "user":
            check_pictures(pictures_of(message.images), f"{where}.images", PARAM)
            check_pictures(message.content, f"{where}.content", PARAM)
        said = message_of(message, role)
        if said.role == "tool":
            found.append(_placed(said, open_calls))
            continue
        open_calls = []
        for call in said.calls:
            # Nine letters and digits: some templates take no other id.
            known = call.id or f"call{count:05}"
            open_calls.append(msgspec.structs.replace(call, id=known))
            count += 1
        found.append(msgspec.structs.replace(said, calls=tuple(open_calls)))
    return tuple(found)


def _placed(result: Message, open_calls: list[Call]) -> Message:
    """Takes the call that it answers out of the open ones."""

    def is_meant(call: Call) -> bool:
        if result.call_id:
            return call.id == result.call_id
        return not result.name or call.name == result.name

    call = next(filter(is_meant, open_calls), None)
    if call is None:
        return result
    open_calls.remove(call)
    return msgspec.structs.replace(result, call_id=call.id, name=result.name or call.name)
