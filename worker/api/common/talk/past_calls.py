"""Tool calls in a history, as chats and Ollama's clients write them."""

from __future__ import annotations

from typing import Any

import msgspec


class CalledFunction(msgspec.Struct):
    """What was called; `arguments` is JSON text, and clients of other servers send the value.

    input  of a custom tool, in place of arguments
    """

    name: str | None = None
    arguments: Any = None
    input: Any = None


class PastCall(CalledFunction):
    """A tool call in the history: what was called stands in it, or one level deeper."""

    id: str | None = None
    function: CalledFunction | None = None
    custom: CalledFunction | None = None

    @property
    def called(self) -> CalledFunction:
        """Where its name stands."""
        return self.function or self.custom or self
