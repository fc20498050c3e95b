"""What an official client finds at a fleet's endpoint."""

from __future__ import annotations

from typing import Any

import openai


def answered(fleet: str, messages: list[Any]) -> openai.OpenAI:
    """openai, once it has read the same answer whole and streamed, and the models."""
    client = openai.OpenAI(base_url=fleet + "/v1", api_key="any", max_retries=0)
    whole = client.chat.completions.create(model="demo", messages=messages, temperature=0)
    parts = client.chat.completions.create(
        model="demo", messages=messages, temperature=0, stream=True
    )
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert text == whole.choices[0].message.content
    assert [entry.id for entry in client.models.list()] == ["demo"]
    return client
