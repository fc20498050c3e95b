"""openai, typesafe-sdk and jevper: typed questions of each type, pictures, models, errors."""

from __future__ import annotations

import base64
from typing import Any

import openai
import scene
import typesafe_sdk
from jevper import SystemOneClient
from typesafe_sdk import Choice, Image, Noul, Score, TypeSafeClient

NOTE = "Once again the lift is stuck, since noon."
BROKEN = "Something is out of order."
LONG = {"notes": [f"{NOTE} ({number})" for number in range(30)]}  # is packed with zstd
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAEnNCcKAAAAAElFTkSuQmCC"
)
QUESTIONS: list[Any] = [
    {"type": "predicate", "name": "broken", "instructions": BROKEN},
    {
        "type": "choice",
        "instructions": "Who repairs it?",
        "choices": [{"value": "lifts", "description": "doors, cabins"}, {"value": False}],
    },
    {
        "type": "score",
        "instructions": [{"type": "input_text", "text": "How urgent?"}],
        "levels": [{"label": "can wait"}, {"label": "today"}, {"label": "now"}],
    },
]
NAMED = {
    "broken": Noul(instructions=BROKEN, criteria={"true": "It stands still."}),
    "who": Choice(criteria={"lifts": "doors, cabins", "nobody": None}),
    "urgent": Score(instructions="How urgent?", criteria=["can wait", "today", "now"]),
}


def openai_client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)


def typesafe_client(url: str) -> TypeSafeClient:
    retry = typesafe_sdk.RetryPolicy(max_retries=0)
    return TypeSafeClient(api_key="unused", base_url=url, retry=retry, timeout=120)


def openai_all(url: str) -> Any:
    made = openai_client(url).decisions.create(
        model="m", input=NOTE, questions=QUESTIONS, prompt_cache_key="k", safety_identifier="s"
    )
    assert {type(each).__name__ for each in made.answers} == {
        "AnswerAnswerResourcePredicate", "AnswerAnswerResourceChoice", "AnswerAnswerResourceScore",
    }  # fmt: skip
    return made.model_dump()


def openai_items(url: str) -> Any:
    """A step of an agent is judged."""
    items: list[Any] = [
        {"role": "user", "content": [{"type": "input_json", "data": {"floor": 3}}]},
        {"type": "function_call", "call_id": "c", "name": "ring", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "No one came."},
    ]
    made = openai_client(url).decisions.create(model="m", input=items, questions=QUESTIONS[:1])
    return made.model_dump()


def openai_refused(url: str) -> Any:
    try:
        openai_client(url).decisions.create(model="m", input=NOTE, questions=QUESTIONS[:1] * 401)
    except openai.BadRequestError as error:
        return [error.param, error.type]
    return None


def typesafe_all(url: str) -> Any:
    made = typesafe_client(url).system_one(state=LONG, questions=NAMED, model="m")
    assert made.request_id
    assert made.nouls["broken"].noul == made.answers["broken"].noul
    return made.model_dump()


def typesafe_picture(url: str) -> Any:
    picture = Image(PNG)
    made = typesafe_client(url).system_one(
        state={"photo": picture}, questions={"broken": NAMED["broken"]}, model="m"
    )
    return made.model_dump()


def typesafe_refused(url: str) -> Any:
    try:
        typesafe_client(url).system_one(
            state=NOTE, questions={"where.is": {"type": "box", "instructions": "lift"}}, model="m"
        )
    except typesafe_sdk.TypeSafeUnprocessableEntityError as error:
        return [error.status, error.body["detail"][0]["loc"]]
    return None


def typesafe_models(url: str) -> Any:
    (model,) = typesafe_client(url).models.list().models
    return [model.name, model.description, model.release_date.count("-")]


def jevper_all(url: str) -> Any:
    client = SystemOneClient(openai_client(url), model="m", api="systemone")
    made = client.system_one(
        state=NOTE,
        questions={name: question.model_dump() for name, question in NAMED.items()},
    )
    return {name: answer.model_dump() for name, answer in made.answers.items()}


scene.tell(
    openai_all=openai_all, openai_items=openai_items, openai_refused=openai_refused,
    typesafe_all=typesafe_all, typesafe_picture=typesafe_picture,
    typesafe_refused=typesafe_refused, typesafe_models=typesafe_models, jevper_all=jevper_all,
)  # fmt: skip
