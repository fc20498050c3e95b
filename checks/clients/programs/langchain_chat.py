"""LangChain: tools bound to a chat model, streamed too, and structured output."""

from __future__ import annotations

from typing import Any

import scene
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


@tool
def look_up(place: str) -> str:
    """To look up."""
    return scene.PLACES[place]


@tool
def rest() -> str:
    """To rest."""
    return scene.STEPS[-1][2]


class Pet(BaseModel):
    """A pet."""

    animal: str
    legs: int


def model(url: str, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(base_url=f"{url}/v1", api_key="unused", model="m", max_retries=0, **more)


def run(invoke: Any) -> Any:
    tools = {each.name: each for each in (look_up, rest)}
    messages: list[Any] = [HumanMessage(scene.TOUR)]
    for _ in range(9):
        answer = invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            break
        for call in answer.tool_calls:
            result = tools[call["name"]].invoke(call["args"])
            messages.append(ToolMessage(result, tool_call_id=call["id"]))
    return [len(messages), answer.text]


def loop(url: str) -> Any:
    return run(model(url).bind_tools([look_up, rest]).invoke)


def loop_streamed(url: str) -> Any:
    bound = model(url).bind_tools([look_up, rest])

    def invoke(messages: list[Any]) -> Any:
        whole = None
        for chunk in bound.stream(messages):
            whole = chunk if whole is None else whole + chunk
        return whole

    return run(invoke)


def loop_responses(url: str) -> Any:
    return run(model(url, use_responses_api=True).bind_tools([look_up, rest]).invoke)


def structured(url: str) -> Any:
    return model(url).with_structured_output(Pet).invoke(scene.PET).model_dump()


def structured_by_call(url: str) -> Any:
    bound = model(url).with_structured_output(Pet, method="function_calling")
    return bound.invoke(scene.PET + " By a call.").model_dump()


scene.tell(
    loop=loop, loop_streamed=loop_streamed, loop_responses=loop_responses,
    structured=structured, structured_by_call=structured_by_call,
)  # fmt: skip
