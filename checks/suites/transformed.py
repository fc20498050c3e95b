"""What transformers makes of the conversations, in an environment of its own, as JSON.

Arguments: the folder of the templates. For each template and conversation a list of four: as they
are, with calls' arguments as text, with contents as text, with both.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

from conversations import CONVERSATIONS
from transformers.utils.chat_template_utils import (
    _normalize_chat_messages,
    render_jinja_template,
)


def with_arguments_as_text(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls as OpenAI's clients send them."""
    messages = copy.deepcopy(messages)
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    return messages


def with_text(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """No content that is null or a list of parts."""
    messages = copy.deepcopy(messages)
    for message in messages:
        if isinstance(message["content"], list):
            message["content"] = "\n".join(part["text"] for part in message["content"])
        message["content"] = message["content"] or ""
    return messages


def rendered(source: str, messages: list[dict[str, Any]], tools: Any) -> str | None:
    """None where it raises."""
    try:
        return render_jinja_template(
            [_normalize_chat_messages(messages)], tools=tools, chat_template=source,
            add_generation_prompt=True, bos_token="<s>", eos_token="</s>",
        )[0][0]  # fmt: skip
    except Exception:  # noqa: BLE001  (whatever a template makes of it)
        return None


found = {
    f"{path.stem} {name}": [
        rendered(path.read_text("utf-8"), given, tools)
        for given in (messages, with_arguments_as_text(messages), with_text(messages),
                      with_text(with_arguments_as_text(messages)))
    ]
    for path in sorted(Path(sys.argv[1]).glob("*.jinja"))
    for name, (messages, tools) in CONVERSATIONS.items()
}  # fmt: skip
print(json.dumps(found))
