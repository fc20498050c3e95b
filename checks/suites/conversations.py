"""Conversations whose words are marked: `zs...` system, `zu...` user, `za...` assistant, `zt...` a
thought, `zr...` a result, `zv...` an argument. Name -> messages in OpenAI's form, tools.

It imports nothing: it is read beside transformers too.
"""

from __future__ import annotations

from typing import Any


def _tool(name: str, text: str, **properties: tuple[str, str]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            key: {"type": kind, "description": said} for key, (kind, said) in properties.items()
        },
    }
    if name == "sky":
        schema["required"] = ["at"]
    function = {"name": name, "description": text, "parameters": schema}
    return {"type": "function", "function": function}


def _said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def _call(own: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": own, "type": "function", "function": {"name": name, "arguments": arguments}}


def _parts(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


_TOOLS = [
    _tool("sky", "Tells the sky", at=("string", "Where"), days=("integer", "How many")),
    _tool("sea", "Tells the sea", more=("string", "More of it")),
]
_ONE = _call("abcdefgh1", "sky", {"at": "zvrome", "days": 3})
_TWO = _call("abcdefgh2", "sea", {"more": "zvtide"})
_FIRST = _said("tool", "zrone", tool_call_id="abcdefgh1", name="sky")
_SECOND = _said("tool", "zrtwo", tool_call_id="abcdefgh2", name="sea")
_SYSTEM, _USER, _NEXT = (
    _said("system", "zsone"), _said("user", "zuone"), _said("user", "zutwo"),
)  # fmt: skip
_ANSWER = _said("assistant", "zaone")

CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]] | None]] = {
    "user": ([_USER], None),
    "system": ([_SYSTEM, _USER], None),
    "turns": (
        [_SYSTEM, _USER, _ANSWER, _NEXT, _said("assistant", "zatwo"), _said("user", "zuthree")],
        None,
    ),
    "thought": ([_USER, _said("assistant", "zaone", reasoning_content="ztone"), _NEXT], None),
    "tools": ([_SYSTEM, _USER], _TOOLS),
    "call": ([_SYSTEM, _USER, _said("assistant", "", tool_calls=[_ONE]), _FIRST], _TOOLS),
    "two": (
        [_USER, _said("assistant", None, tool_calls=[_ONE, _TWO]), _FIRST, _SECOND, _ANSWER,
         _NEXT],
        _TOOLS,
    ),
    "beside": (
        [_SYSTEM, _USER, _said("assistant", "zaone", tool_calls=[_ONE]), _FIRST,
         _said("assistant", "zatwo"), _NEXT],
        _TOOLS,
    ),
    "thinks": (
        [_USER, _said("assistant", "", reasoning_content="ztone", tool_calls=[_ONE]), _FIRST],
        _TOOLS,
    ),
    "parts": (
        [_said(role, _parts(words)) for role, words in
         (("system", "zsone"), ("user", "zuone"), ("assistant", "zaone"), ("user", "zutwo"))],
        None,
    ),
    "empty": ([_said("system", ""), _USER, _said("assistant", ""), _NEXT], None),
    "later": ([_SYSTEM, _USER, _ANSWER, _said("system", "zstwo"), _NEXT], None),
}  # fmt: skip
