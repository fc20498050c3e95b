"""litellm: typed questions by its provider openai and by hosted_vllm, which asks /v1/systemone."""

from __future__ import annotations

from typing import Any

import litellm
import scene

litellm.suppress_debug_info = True

NOTE = "Once again the lift is stuck, since noon."
QUESTIONS: list[Any] = [
    {"type": "predicate", "name": "broken", "instructions": "Something is out of order."},
    {
        "type": "choice", "name": "who", "instructions": "Who repairs it?",
        "choices": [{"value": "lifts", "description": "doors, cabins"}, {"value": False}],
    },
    {
        "type": "score", "name": "urgent", "instructions": "How urgent?",
        "levels": [{"label": "can wait"}, {"label": "today"}, {"label": "now"}],
    },
]  # fmt: skip
NAMED: dict[str, Any] = {
    "broken": {"type": "noul", "instructions": "Something is out of order."},
    "who": {"type": "choice", "criteria": {"lifts": "doors, cabins", "nobody": None}},
    "urgent": {"type": "score", "criteria": ["can wait", "today", "now"]},
}


def ask(url: str, provider: str) -> Any:
    found = litellm.decisions(
        f"{provider}/m", input=NOTE, questions=QUESTIONS, api_base=url, api_key="unused"
    )
    return found.model_dump()


def openai(url: str) -> Any:
    return ask(f"{url}/v1", "openai")


def hosted_vllm(url: str) -> Any:
    return ask(url, "hosted_vllm")


def system_one(url: str) -> Any:
    found = litellm.systemone(
        "hosted_vllm/m", state={"note": NOTE}, questions=NAMED, api_base=url, api_key="unused"
    )
    return found.model_dump()


scene.tell(openai=openai, hosted_vllm=hosted_vllm, system_one=system_one)
