"""The neutral request of all chat APIs."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.api.intake.media_inputs import MediaInputs
from worker.chat.message import Message, Tool
from worker.chat.thinking import Thinking
from worker.engine.request import GenerationParams


class ChatInput(msgspec.Struct, frozen=True, kw_only=True):
    """Messages to answer.

    media      whose marks stand in the messages
    params     what is wanted of each answer; `prompt_param` is the field that holds the messages
    left_out   a sentence for each tool that the model is not shown
    choice     auto; required: at least one call; none: no call
    only       the one tool that may be called; None: any
    parallel   whether an answer may hold several calls
    opens      the prompt ends with the assistant's opening
    continues  the prompt ends inside the last message, which is to go on
    truncates  old turns are left out where the context is too small
    variables  what else the template gets
    controlled a thought may be ended while it is written
    """

    messages: tuple[Message, ...]
    media: MediaInputs = msgspec.field(default_factory=MediaInputs)
    params: GenerationParams = GenerationParams(prompt_param="messages")
    tools: tuple[Tool, ...] = ()
    left_out: tuple[str, ...] = ()
    choice: str = "auto"
    only: str | None = None
    parallel: bool = True
    thinking: Thinking = Thinking()
    variables: dict[str, Any] = {}
    opens: bool = True
    continues: bool = False
    truncates: bool = False
    controlled: bool = False

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools that an answer may call."""
        if self.choice == "none":
            return ()
        return tuple(tool for tool in self.tools if self.only in (None, tool.name))


def puts_words(messages: tuple[Message, ...]) -> bool:
    """Whether the last message puts words into the model's mouth, as Anthropic and Ollama have it:
    the answer goes on with them."""
    if not messages:
        return False
    last = messages[-1]
    return last.role == "assistant" and not last.calls and bool((last.content or "").strip())
