"""Agent frameworks run a tool loop by themselves: pydantic-ai, openai-agents, Microsoft's."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import scene
from agent_framework import Agent as MicrosoftAgent
from agent_framework.openai import OpenAIChatClient
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.openai import OpenAIResponsesModel as PydanticResponses
from pydantic_ai.providers.openai import OpenAIProvider

set_tracing_disabled(True)


class Pet(BaseModel):
    """A pet."""

    animal: str
    legs: int


def look_up(place: str) -> str:
    """To look up."""
    return scene.PLACES[place]


def rest() -> str:
    """To rest."""
    return scene.STEPS[-1][2]


def client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)


def pydantic_model(url: str, kind: Any = OpenAIChatModel) -> Any:
    return kind("m", provider=OpenAIProvider(openai_client=client(url)))


def pydantic_loop(url: str) -> Any:
    agent = PydanticAgent(pydantic_model(url), tools=[look_up, rest])
    found = agent.run_sync(scene.TOUR)
    return [len(found.all_messages()), found.output]


def pydantic_responses(url: str) -> Any:
    agent = PydanticAgent(pydantic_model(url, PydanticResponses), tools=[look_up, rest])
    found = agent.run_sync(scene.TOUR)
    return [len(found.all_messages()), found.output]


def pydantic_streamed(url: str) -> Any:
    async def run() -> Any:
        agent = PydanticAgent(pydantic_model(url), tools=[look_up, rest])
        async with agent.run_stream(scene.TOUR) as found:
            return [len(found.all_messages()), await found.get_output()]

    return asyncio.run(run())


def pydantic_structured(url: str) -> Any:
    agent = PydanticAgent(pydantic_model(url), output_type=NativeOutput(Pet))
    return agent.run_sync(scene.PET).output.model_dump()


def agents_run(model: Any, text: str, **more: Any) -> Any:
    agent = Agent(
        name="tourist",
        instructions="You travel.",
        model=model,
        model_settings=ModelSettings(store=False),
        **more,
    )
    return Runner.run_sync(agent, text)


def agents_chat(url: str) -> Any:
    tools = [function_tool(look_up), function_tool(rest)]
    model = OpenAIChatCompletionsModel("m", client(url))
    found = agents_run(model, scene.TOUR, tools=tools)
    return [len(found.raw_responses), found.final_output]


def agents_responses(url: str) -> Any:
    tools = [function_tool(look_up), function_tool(rest)]
    found = agents_run(OpenAIResponsesModel("m", client(url)), scene.TOUR, tools=tools)
    return [len(found.raw_responses), found.final_output]


def agents_structured(url: str) -> Any:
    model = OpenAIResponsesModel("m", client(url))
    return agents_run(model, scene.PET, output_type=Pet).final_output.model_dump()


def microsoft_loop(url: str) -> Any:
    """By responses, each of which goes on from the one before."""
    client = OpenAIChatClient("m", base_url=f"{url}/v1", api_key="unused")
    agent = MicrosoftAgent(client, tools=[look_up, rest])
    found = asyncio.run(agent.run(scene.TOUR))
    return [len(found.messages) + 1, found.text]


scene.tell(
    pydantic_loop=pydantic_loop,
    pydantic_responses=pydantic_responses,
    pydantic_streamed=pydantic_streamed,
    pydantic_structured=pydantic_structured,
    agents_chat=agents_chat,
    agents_responses=agents_responses,
    agents_structured=agents_structured,
    microsoft_loop=microsoft_loop,
)
