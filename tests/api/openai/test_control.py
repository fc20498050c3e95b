"""POST /v1/chat/completions/control: a thought is ended while its client reads on."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import http
from tests.support.chats import CHAT
from tests.support.models.speaking import FAMILIES
from tests.support.programs.processes import Server, serving

THOUGHT = "One two three four five six seven eight nine ten. " * 12
CONTROL = "/v1/chat/completions/control"
END = "reasoning_end"


def _key(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A model that thinks for long; two keys may ask it."""
    speaker, folder = FAMILIES["qwen3"], tmp_path_factory.mktemp("control")
    path = speaker.write_model(
        folder / "model.gguf", [speaker.recital(speaker.answer(THOUGHT.strip(), "Done.", []))]
    )
    keys: Path = folder / "keys"
    keys.write_text("anna name=anna\nbob name=bob\n")
    with serving(
        "--model", path, "--ctx-size", "8192", "--api-key-file", keys, step_seconds=0.02
    ) as server:
        yield server


class _Reading:
    """A stream of anna's. events: those to come"""

    def __init__(self, reply: httpx.Response) -> None:
        lines = (line[6:] for line in reply.iter_lines() if line.startswith("data: {"))
        self.events: Iterator[dict[str, Any]] = map(json.loads, lines)
        self.thought = self.content = ""

    def until_thought(self) -> str:
        """Read until a thought is begun; the answer's id."""
        name = ""
        while not self.thought:
            event = next(self.events)
            name = str(event["id"])
            self._note(event)
        return name

    def rest(self) -> None:
        for event in self.events:
            self._note(event)

    def _note(self, event: dict[str, Any]) -> None:
        delta = event["choices"][0]["delta"]
        self.thought += delta.get("reasoning_content") or ""
        self.content += delta.get("content") or ""


def _control(server: Server, name: str, key: str = "anna", action: str = END) -> httpx.Response:
    body = {"id": name, "action": action}
    return http.post(server.url + CONTROL, json=body, headers=_key(key))


def _ask(**fields: Any) -> dict[str, Any]:
    asked = [{"role": "user", "content": "Hello?"}]
    return {"messages": asked, "stream": True, "temperature": 0, **fields}


def test_the_thought_ends_now(qwen: Server) -> None:
    """It is closed within a token, and what follows is the answer's content; another key cannot,
    and an answer that has ended is left alone."""
    body = _ask(reasoning_control=True)
    with http.stream("POST", qwen.url + CHAT, json=body, headers=_key("anna")) as reply:
        reading = _Reading(reply)
        name = reading.until_thought()
        assert _control(qwen, name, "bob").json() == {
            "success": False, "message": "No answer with this id is running.",
        }  # fmt: skip
        assert _control(qwen, name).json() == {"success": True}
        reading.rest()
    assert THOUGHT.startswith(reading.thought.rstrip())
    assert len(reading.thought) < len(THOUGHT) / 2
    assert _control(qwen, name).json()["success"] is False


def test_only_where_it_was_asked_for(qwen: Server) -> None:
    """Without `reasoning_control` nothing ends, and the answer says why."""
    with http.stream("POST", qwen.url + CHAT, json=_ask(max_tokens=60), headers=_key("anna")) as r:
        reading = _Reading(r)
        told = _control(qwen, reading.until_thought()).json()
        assert told["success"] is False
        assert "reasoning_control" in told["message"]
        reading.rest()
    assert reading.content == ""


def test_what_is_refused(qwen: Server) -> None:
    """A missing id and another action are 400 with the field; without a key it is 401."""
    assert _control(qwen, "").json()["error"]["param"] == "id"
    assert _control(qwen, "chatcmpl-x", action="stop").json()["error"]["param"] == "action"
    assert http.post(qwen.url + CONTROL, json={}).status_code == 401
