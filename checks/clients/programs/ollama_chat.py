"""The ollama package: chats, tools, formats, the model."""

from __future__ import annotations

import json
from typing import Any

import ollama
import scene


def chat(url: str) -> Any:
    messages = [{"role": "user", "content": scene.HELLO}]
    return ollama.Client(url).chat("m", messages=messages).message.content


def stream(url: str) -> Any:
    messages = [{"role": "user", "content": scene.HELLO}]
    parts = ollama.Client(url).chat("m", messages=messages, stream=True)
    return "".join(part.message.content or "" for part in parts)


def structured(url: str) -> Any:
    messages = [{"role": "user", "content": scene.PET}]
    found = ollama.Client(url).chat("m", messages=messages, format=scene.SCHEMA)
    return json.loads(found.message.content or "")


def loop(url: str) -> Any:
    return run(lambda messages: ollama.Client(url).chat("m", messages=messages, tools=scene.TOOLS))


def loop_streamed(url: str) -> Any:
    def send(messages: list[Any]) -> Any:
        parts = list(
            ollama.Client(url).chat("m", messages=messages, tools=scene.TOOLS, stream=True)
        )
        calls = [call for part in parts for call in part.message.tool_calls or []]
        text = "".join(part.message.content or "" for part in parts)
        message = ollama.Message(role="assistant", content=text, tool_calls=calls or None)
        return ollama.ChatResponse(message=message)

    return run(send)


def run(send: Any) -> Any:
    messages: list[Any] = [{"role": "user", "content": scene.TOUR}]
    for _ in range(9):
        message = send(messages).message
        messages.append(message)
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            result = scene.do(call.function.name, dict(call.function.arguments))
            messages.append({"role": "tool", "tool_name": call.function.name, "content": result})
    return [len(messages), message.content]


def model(url: str) -> Any:
    client = ollama.Client(url)
    (listed,) = client.list().models
    return "tools" in (client.show(listed.model).capabilities or [])


scene.tell(
    chat=chat, stream=stream, structured=structured, loop=loop, loop_streamed=loop_streamed,
    model=model,
)  # fmt: skip
