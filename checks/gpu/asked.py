"""What a worker on the GPU is asked."""

from __future__ import annotations

from typing import Any

from tests.support.programs.offloaded import PROMPT
from tests.support.programs.processes import Server

TOKENS = 32


def said(server: Server, prompt: Any = PROMPT, **fields: Any) -> dict[str, Any]:
    """A greedy answer."""
    body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    answer = server.post(body | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def text(server: Server, **fields: Any) -> str:
    return str(said(server, **fields)["choices"][0]["text"])
