"""A last message that is to go on: where its prompt ends."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from worker.chat.message import Message

# Ends the message while its template shows it: what was said may stand elsewhere in the prompt.
_END = uuid.uuid4().hex


class Continued(msgspec.Struct, frozen=True):
    """What the last message says, and the texts around a thought; empty ones: there are none.

    White space at its end stays, whatever the template does with it.

    thought  goes on where there is no content
    shown    the message as the template gets it, with a mark at its end
    before   the messages before it, as the template gets them
    """

    content: str
    thought: str
    opens: str
    closes: str
    shown: Mapping[str, Any] = {}
    before: Sequence[Mapping[str, Any]] = ()

    def cut(self, text: str) -> str:
        """The prompt up to the end of the message; empty where the template does not show it, or
        shows a thought as an answer, or an answer as a thought."""
        content, thought = self.content.strip(), self.thought.strip()
        before, mark, _ = text.rpartition(_END)
        said = content or thought
        if not mark or not before.endswith(said):
            return ""
        if content and self._opens(before.removesuffix(content)):
            return ""
        if thought and self.opens and not self._opens(before.rpartition(thought)[0]):
            return ""
        whole = self.content if content else self.thought
        return before + whole[len(whole.rstrip()) :]

    def after(self, opened: str) -> str:
        """The message behind a prompt that ends with the assistant's opening."""
        content = self.content if self.content.strip() else ""
        is_open = self._opens(opened)
        if self.thought and not is_open:
            opened += self.opens
        if not content:
            return opened + self.thought
        return opened + (self.thought + self.closes if self.thought or is_open else "") + content

    def _opens(self, text: str) -> bool:
        """Whether a thought begins behind it."""
        return bool(self.opens) and text.rstrip().endswith(self.opens.rstrip())


def marked_end(message: Message) -> Message:
    """The same with a mark at the end of what goes on."""
    if (message.content or "").strip():
        return msgspec.structs.replace(message, content=(message.content or "").rstrip() + _END)
    return msgspec.structs.replace(message, thought=(message.thought or "").rstrip() + _END)


def says_nothing(message: Message) -> bool:
    """Whether there is nothing to go on with."""
    return not ((message.content or "").strip() or (message.thought or "").strip() or message.calls)
