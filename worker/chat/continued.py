"""A last message that is to go on: where its prompt ends."""

from __future__ import annotations

import msgspec

from worker.errors import RequestError


class Continued(msgspec.Struct, frozen=True):
    """What the last message says, and the texts around a thought; empty ones: there are none.

    White space at its end stays, whatever the template does with it.

    thought  goes on where there is no content
    """

    content: str
    thought: str
    opens: str
    closes: str

    def cut(self, text: str) -> str:
        """The prompt up to the end of the message; empty where the template does not show it, or
        shows a thought as an answer, or an answer as a thought."""
        content, thought = self.content.strip(), self.thought.strip()
        if not content and not thought:
            return ""
        before, said, _ = text.rpartition(content or thought)
        if not said or (content and self._opens(before)):
            return ""
        if thought and self.opens and not self._opens(text.rpartition(thought)[0]):
            return ""
        whole = self.content if content else self.thought
        return before + said + whole[len(whole.rstrip()) :]

    def after(self, opened: str) -> str:
        """The message behind a prompt that ends with the assistant's opening.

        Raises RequestError where the model cannot be shown it.
        """
        content = self.content if self.content.strip() else ""
        thought = self.thought if self.opens else ""
        if not (thought.strip() or content):
            raise RequestError(
                "continue_final_message needs a last message whose text the template shows.",
                param="continue_final_message",
            )
        is_open = self._opens(opened)
        if thought and not is_open:
            opened += self.opens
        if not content:
            return opened + thought
        return opened + (thought + self.closes if thought or is_open else "") + content

    def _opens(self, text: str) -> bool:
        """Whether a thought begins behind it."""
        return bool(self.opens) and text.rstrip().endswith(self.opens.rstrip())
