"""Responses that clients may refer to, in memory. Those that nobody asked for longest go first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from worker.api.responses.chat_input import PARAM, InputItem, input_items
from worker.api.responses.items import OutputItem, ResponseReply
from worker.api.responses.schemas import ResponseRequest
from worker.engine.stream import Stream
from worker.errors import CancelledError, NotFoundError, RequestError, TooLargeError
from worker.limits import PARTS, STORED, STORED_BYTES

_BEFORE = "previous_response_id"
UNKNOWN = "previous_response_not_found"  # OpenAI's code
_NAME = 32  # characters of a response's id that those of its items hold


class StoredResponse(msgspec.Struct, frozen=True):
    """One response.

    reply   JSON, as it is by now
    items   JSON of its own input
    before  the response that it goes on from
    owner   whose key asked for it
    stream  what it is made of; None: it has ended
    cut     ends its output where it is, and gives that
    """

    reply: bytes
    items: bytes
    before: str | None
    owner: str
    stream: Stream | None = None
    cut: Callable[[], list[OutputItem]] = list

    @property
    def output(self) -> list[InputItem]:
        """As input of what follows. The rest of the reply, up to megabytes, is not decoded."""
        return msgspec.json.decode(self.reply, type=_Said).output

    def with_reply(self, reply: bytes) -> StoredResponse:
        return StoredResponse(reply, self.items, self.before, self.owner)


class _Said(msgspec.Struct):
    output: list[InputItem]


class ResponseStore:
    """All of them by id; for the event loop's thread. Those of another owner are not there."""

    def __init__(self, most: int = STORED.most, most_bytes: int = STORED_BYTES.most << 20) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._found: dict[str, StoredResponse] = {}  # the one that was used last is the last

    def whole(self, body: ResponseRequest, owner: str) -> tuple[ResponseRequest, list[InputItem]]:
        """With all that it refers to as its input; its own items, which are the last of these.

        Raises RequestError, NotFoundError.
        """
        resolved = self.resolve(body, owner)
        own = [*input_items(body.input).values()] if resolved is None else resolved
        if body.previous_response_id is None:
            same = resolved is None
            return (body if same else msgspec.structs.replace(body, input=own)), own
        chain = list(self._back_from(body.previous_response_id, owner))
        # Decoding holds up the event loop: together they may hold what one body may.
        if sum(stored.items.count(part) for stored in chain for part in (b"[", b"{", b":")) > (
            PARTS.most
        ):
            raise TooLargeError(
                f"The conversation holds more than {PARTS.most} lists, objects and fields.",
                param=_BEFORE,
            )
        before: list[InputItem] = []
        for stored in reversed(chain):
            before += [*msgspec.json.decode(stored.items), *stored.output]
        return msgspec.structs.replace(body, input=[*before, *own]), own

    def resolve(self, body: ResponseRequest, owner: str) -> list[InputItem] | None:
        """Its own input with the items that it refers to; None: it refers to none."""
        own = input_items(body.input)
        if not any(map(_reference, own.values())):
            return None
        known: dict[str, list[InputItem]] = {}
        places = ((f"{PARAM}[{place}]", item) for place, item in own.items())
        return [self._item(item, place, owner, known) for place, item in places]

    def begin(
        self,
        reply: ResponseReply,
        own: Sequence[InputItem],
        owner: str,
        stream: Stream,
        cut: Callable[[], list[OutputItem]] = list,
    ) -> None:
        """Keep it while it is made, so that it can be cancelled. cut: see StoredResponse"""
        items, told = msgspec.json.encode(own), msgspec.json.encode(reply)
        before = reply.previous_response_id
        self._put(reply.id, StoredResponse(told, items, before, owner, stream, cut))

    def end(self, reply: ResponseReply) -> None:
        """It is as it will stay; nothing where it was cancelled or dropped."""
        stored = self._found.get(reply.id)
        if stored is not None and stored.stream is not None:
            self._put(reply.id, stored.with_reply(msgspec.json.encode(reply)))

    def reply_of_ended(self, name: str) -> bytes | None:
        """Its reply as it will stay; None: it has not ended, or is not there."""
        stored = self._found.get(name)
        return None if stored is None or stored.stream is not None else stored.reply

    def put(self, name: str, reply: bytes, items: bytes, before: str | None, owner: str) -> None:
        """One that has ended in another process."""
        self._put(name, StoredResponse(reply, items, before, owner))

    def leave(self, name: str) -> None:
        """Drop what did not end, and never will."""
        stored = self._found.get(name)
        if stored is not None and stored.stream is not None:
            self._drop(name)

    def cancel(self, name: str, owner: str) -> bytes:
        """End it; its reply, with what it said. One that has ended stays as it is.

        Raises NotFoundError.
        """
        stored = self.get(name, owner)
        if stored.stream is None:
            return stored.reply
        ended = {"status": "cancelled", "output": stored.cut()}
        reply = msgspec.json.encode(msgspec.json.decode(stored.reply) | ended)
        self._put(name, stored.with_reply(reply))
        stored.stream.fail(CancelledError("The response was cancelled."))
        return reply

    def inputs(self, name: str, owner: str) -> list[InputItem]:
        """Its own input as OpenAI lists it, each with an id. Raises NotFoundError."""
        items: list[InputItem] = msgspec.json.decode(self.get(name, owner).items)
        return [_list_item(item, f"{name}{place:02x}") for place, item in enumerate(items)]

    def get(self, name: str, owner: str, param: str | None = None) -> StoredResponse:
        """Raises NotFoundError. param: the client's field that names it"""
        stored = self._found.get(name)
        if stored is None or stored.owner != owner:
            raise NotFoundError(
                f"The response {name[:100]!r} is not stored, or not any more.",
                hint="Send the whole conversation as input." if param else None,
                param=param,
                code=UNKNOWN if param else None,
            )
        self._found[name] = self._found.pop(name)
        return stored

    def drop(self, name: str, owner: str) -> None:
        """Raises NotFoundError."""
        self.get(name, owner)
        self._drop(name)

    def _drop(self, name: str) -> None:
        self._bytes -= _size(self._found.pop(name))

    def _put(self, name: str, stored: StoredResponse) -> None:
        if name in self._found:
            self._drop(name)
        self._found[name] = stored
        self._bytes += _size(stored)
        while self._found and (len(self._found) > self._most or self._bytes > self._most_bytes):
            self._drop(next(iter(self._found)))

    def _back_from(self, name: str | None, owner: str) -> Iterator[StoredResponse]:
        """It, and what it goes on from, to the first one."""
        while name is not None:
            stored = self.get(name, owner, _BEFORE)
            if stored.stream is not None:
                raise RequestError(f"The response {name!r} has not ended yet.", param=_BEFORE)
            yield stored
            name = stored.before

    def _item(
        self, item: InputItem, place: str, owner: str, known: dict[str, list[InputItem]]
    ) -> InputItem:
        """What it refers to, or itself. known: outputs that were decoded, by response"""
        name = _reference(item)
        if name is None:
            return item
        # An item's id holds that of its response.
        whose = "resp_" + name.partition("_")[2][:_NAME]
        if whose not in known:
            stored = self._found.get(whose)
            known[whose] = stored.output if stored is not None and stored.owner == owner else []
        found = [each for each in known[whose] if each["id"] == name]
        if not found:
            raise NotFoundError(
                f"{place} refers to an item that is not stored, or not any more.",
                param=PARAM,
                hint="Send the item itself.",
                code=UNKNOWN,
            )
        return found[0]


def _list_item(item: InputItem, name: str) -> InputItem:
    """name: its id where it has none"""
    found: InputItem = {
        "id": f"in_{name.removeprefix('resp_')}",
        "type": "message",
        "status": "completed",
    }
    found |= item
    content = found.get("content")
    if found["type"] == "message" and isinstance(content, str):
        said: InputItem = {"type": "input_text", "text": content}
        if found.get("role") == "assistant":
            said |= {"type": "output_text", "annotations": []}
        found["content"] = [said]
    return found


def _size(stored: StoredResponse) -> int:
    return len(stored.reply) + len(stored.items)


def _reference(item: InputItem) -> str | None:
    """The id of the item that it refers to; it need not say so."""
    kind, name = item.get("type"), item.get("id")
    is_bare = kind in (None, "message") and item.keys() <= {"type", "id"}
    return str(name) if kind == "item_reference" or (is_bare and name) else None
