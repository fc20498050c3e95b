"""The anthropic package: messages, tools, streams, count_tokens."""

from __future__ import annotations

from typing import Any

import anthropic
import scene

TOOLS = [
    {
        "name": tool["function"]["name"],
        "description": tool["function"]["description"],
        "input_schema": tool["function"]["parameters"],
    }
    for tool in scene.TOOLS
]


def messages(url: str) -> Any:
    return anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0).messages


def asked(text: str) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 200, "messages": [{"role": "user", "content": text}]}


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def chat(url: str) -> Any:
    return text_of(messages(url).create(**asked(scene.HELLO)))


def stream(url: str) -> Any:
    with messages(url).stream(**asked(scene.HELLO)) as events:
        text = "".join(events.text_stream)
        assert text == text_of(events.get_final_message())
    return text


def thinks(url: str) -> Any:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    body = asked(scene.HELLO) | {"max_tokens": 2048}
    with messages(url).stream(**body, thinking=thinking) as events:
        return [block.type for block in events.get_final_message().content]


def loop(url: str) -> Any:
    return run(lambda body: messages(url).create(**body))


def loop_streamed(url: str) -> Any:
    def send(body: dict[str, Any]) -> Any:
        with messages(url).stream(**body) as events:
            return events.get_final_message()

    return run(send)


def run(send: Any) -> Any:
    body = asked(scene.TOUR) | {"tools": TOOLS, "system": "You travel."}
    for _ in range(9):
        message = send(body)
        turns = [*body["messages"], {"role": "assistant", "content": message.content}]
        results = [
            {
                "type": "tool_result",
                "tool_use_id": block.id,
                "content": scene.do(block.name, block.input),
            }
            for block in message.content
            if block.type == "tool_use"
        ]
        if message.stop_reason != "tool_use":
            break
        body = body | {"messages": [*turns, {"role": "user", "content": results}]}
    return [len(turns), text_of(message)]


def tokens(url: str) -> Any:
    body = asked(scene.HELLO)
    counted = messages(url).count_tokens(model="m", messages=body["messages"]).input_tokens
    usage = messages(url).create(**body).usage
    return counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def refused(url: str) -> Any:
    try:
        messages(url).create(**(asked("x") | {"messages": []}))
    except anthropic.BadRequestError as error:
        return error.body["error"]["type"]


scene.tell(
    chat=chat, stream=stream, thinks=thinks, loop=loop, loop_streamed=loop_streamed,
    tokens=tokens, refused=refused,
)  # fmt: skip
