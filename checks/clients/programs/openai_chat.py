"""The openai package: chats, tools, structured answers, responses."""

from __future__ import annotations

import json
import time
from typing import Any

import openai
import pydantic
import scene


class Pet(pydantic.BaseModel):
    """A structured answer."""

    animal: str
    legs: int


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def chat(url: str) -> Any:
    create = client(url).chat.completions.create
    return create(model="m", messages=[user(scene.HELLO)]).choices[0].message.content


def batch(url: str) -> Any:
    """The batch example of OpenAI's documentation."""
    openai_client = client(url)
    body = {"model": "m", "messages": [user(scene.HELLO)]}
    lines = [
        {"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions", "body": body}
        for n in range(3)
    ]
    data = "\n".join(map(json.dumps, lines)).encode()
    file = openai_client.files.create(file=("in.jsonl", data), purpose="batch")
    made = openai_client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    while made.status in ("validating", "in_progress", "finalizing"):
        time.sleep(0.1)
        made = openai_client.batches.retrieve(made.id)
    content = openai_client.files.content(made.output_file_id or "").text
    found = [json.loads(line) for line in content.splitlines()]
    return [each["response"]["body"]["choices"][0]["message"]["content"] for each in found]


def stream(url: str) -> Any:
    create = client(url).chat.completions.create
    chunks = create(model="m", messages=[user(scene.HELLO)], stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def parse(url: str) -> Any:
    parse = client(url).chat.completions.parse
    message = parse(model="m", messages=[user(scene.PET)], response_format=Pet).choices[0].message
    return message.parsed.model_dump()


def loop(url: str) -> Any:
    create = client(url).chat.completions.create
    messages = [user(scene.TOUR)]
    for _ in range(9):
        choice = create(model="m", messages=messages, tools=scene.TOOLS).choices[0]
        messages.append(choice.message.model_dump(exclude_none=True))
        if choice.finish_reason != "tool_calls":
            break
        for call in choice.message.tool_calls:
            result = scene.do(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return [len(messages), messages[-1]["content"]]


def loop_streamed(url: str) -> Any:
    open_stream = client(url).chat.completions.stream
    messages = [user(scene.TOUR)]
    for _ in range(9):
        with open_stream(model="m", messages=messages, tools=scene.TOOLS) as events:
            choice = events.get_final_completion().choices[0]
        messages.append(choice.message.to_dict())
        if choice.finish_reason != "tool_calls":
            break
        for call in choice.message.tool_calls:
            result = scene.do(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return [len(messages), messages[-1]["content"]]


def required(url: str) -> Any:
    create = client(url).chat.completions.create
    (call,) = (
        create(
            model="m",
            messages=[user(scene.TOUR)],
            tools=scene.TOOLS,
            tool_choice={"type": "function", "function": {"name": "look_up"}},
        )
        .choices[0]
        .message.tool_calls
    )
    return [call.function.name, scene.do(call.function.name, call.function.arguments)]


def response(url: str) -> Any:
    return client(url).responses.create(model="m", input=scene.HELLO).output_text


def response_stream(url: str) -> Any:
    with client(url).responses.stream(model="m", input=scene.HELLO) as events:
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(deltas) == events.get_final_response().output_text
    return "".join(deltas)


def response_resume(url: str) -> Any:
    """Leave after some events, and read the rest from there."""
    responses = client(url).responses
    begun = responses.create(model="m", input=scene.HELLO, background=True, stream=True)
    events: list[Any] = []
    for event in begun:
        events.append(event)
        if len(events) == 6:
            break
    begun.close()
    name, last = events[0].response.id, events[-1].sequence_number
    events += responses.retrieve(name, stream=True, starting_after=last)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == events[-1].response.output_text
    return "".join(deltas)


def response_parse(url: str) -> Any:
    parsed = client(url).responses.parse(model="m", input=scene.PET, text_format=Pet)
    return parsed.output_parsed.model_dump()


def response_loop(url: str) -> Any:
    create = client(url).responses.create
    tools = [{"type": "function", "strict": True, **tool["function"]} for tool in scene.TOOLS]
    items: list[Any] = [user(scene.TOUR)]
    calls = 0
    for _ in range(9):
        found = create(model="m", input=items, tools=tools, store=False)
        items += [item.model_dump(exclude_none=True) for item in found.output]
        made = [item for item in found.output if item.type == "function_call"]
        if not made:
            break
        for call in made:
            calls += 1
            result = scene.do(call.name, call.arguments)
            items.append(
                {"type": "function_call_output", "call_id": call.call_id, "output": result}
            )
    return [calls, found.output_text]


scene.tell(
    chat=chat,
    batch=batch,
    stream=stream,
    parse=parse,
    loop=loop,
    loop_streamed=loop_streamed,
    required=required,
    response=response,
    response_stream=response_stream,
    response_resume=response_resume,
    response_parse=response_parse,
    response_loop=response_loop,
)
