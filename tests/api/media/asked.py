"""Questions with pictures."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from tests.support.models.projectors import png
from tests.support.programs.processes import Server

CHAT = "/v1/chat/completions"
PICTURE = png()
ROWS = 16  # vectors of a picture

Body = dict[str, Any]


def spelled(data: bytes) -> str:
    """As base64."""
    return b64encode(data).decode()


def url_of(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{spelled(data)}"


def picture(data: bytes = PICTURE) -> Body:
    """As a part of a chat."""
    return {"type": "image_url", "image_url": {"url": url_of(data)}}


def words(text: str) -> Body:
    return {"type": "text", "text": text}


def user(*parts: Body) -> Body:
    return {"role": "user", "content": list(parts)}


def chat(*messages: Body, **fields: Any) -> Body:
    """A greedy answer of eight tokens."""
    return {"messages": list(messages), "max_tokens": 8, "temperature": 0, "seed": 1, **fields}


def question(data: bytes = PICTURE, text: str = "what is it?", **fields: Any) -> Body:
    return chat(user(picture(data), words(text)), **fields)


def answered(server: Server, body: Body) -> Body:
    """The whole reply."""
    reply = server.post(body, CHAT)
    assert reply.status_code == 200, reply.text
    return reply.json()


def said(server: Server, body: Body) -> str:
    return answered(server, body)["choices"][0]["message"]["content"]


def told(server: Server, body: Body) -> list[tuple[str, float, float]]:
    """The tokens of a greedy answer, their log-probabilities, and how far the second one is."""
    content = answered(server, {**body, "logprobs": True, "top_logprobs": 2})["choices"][0]
    return [
        (each["token"], each["logprob"], each["logprob"] - each["top_logprobs"][1]["logprob"])
        for each in content["logprobs"]["content"]
    ]


def agree(one: list[tuple[str, float, float]], other: list[tuple[str, float, float]]) -> bool:
    """Whether these are the same answer: rows that are computed with others are rounded in another
    way, and where two tokens are as likely as each other that decides."""
    for (token, logprob, gap), (second, also, _) in zip(one, other, strict=True):
        if abs(logprob - also) > 0.02:
            return False
        if token != second:
            return gap < 0.02
    return True
