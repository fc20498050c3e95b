"""litellm: chats, streams and tools by its OpenAI provider and its Anthropic one."""

from __future__ import annotations

from typing import Any

import litellm
import scene

litellm.suppress_debug_info = True


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def send(url: str, provider: str, **body: Any) -> Any:
    base = f"{url}/v1" if provider == "openai" else url
    return litellm.completion(f"{provider}/m", api_base=base, api_key="unused", **body)


def chat(url: str) -> Any:
    found = send(url, "openai", messages=[user(scene.HELLO)])
    return found.choices[0].message.content


def stream(url: str) -> Any:
    chunks = list(send(url, "openai", messages=[user(scene.HELLO)], stream=True))
    return litellm.stream_chunk_builder(chunks).choices[0].message.content


def loop(url: str) -> Any:
    return run(url, "openai")


def loop_anthropic(url: str) -> Any:
    return run(url, "anthropic")


def loop_streamed(url: str) -> Any:
    return run(url, "openai", stream=True)


def loop_anthropic_streamed(url: str) -> Any:
    return run(url, "anthropic", stream=True)


def overflow(url: str) -> Any:
    """The errors for a text beyond the context."""
    found: list[str] = []
    for provider in ("openai", "anthropic"):
        try:
            send(url, provider, messages=[user("beyond " * 9_000)], max_tokens=9)
        except litellm.BadRequestError as error:
            found.append(type(error).__name__)
    return found


def run(url: str, provider: str, **more: Any) -> Any:
    messages = [user(scene.TOUR)]
    for _ in range(9):
        found = send(url, provider, messages=messages, tools=scene.TOOLS, **more)
        if more:
            found = litellm.stream_chunk_builder(list(found), messages=messages)
        message = found.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if found.choices[0].finish_reason != "tool_calls":
            break
        for call in message.tool_calls:
            result = scene.do(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return [len(messages), messages[-1]["content"]]


scene.tell(
    chat=chat, stream=stream, loop=loop, loop_streamed=loop_streamed,
    loop_anthropic=loop_anthropic, loop_anthropic_streamed=loop_anthropic_streamed,
    overflow=overflow,
)  # fmt: skip
