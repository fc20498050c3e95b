"""What clients ask of a worker while something fails, and what they may get."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx

from tests.support import http
from tests.support.programs.processes import PATIENCE_S, Server, until

# Three that begin differently: with two slots the state of one is put aside for another's.
PROMPTS = ("the rain in 1999 and the sun", "seven hats on a red house", "a note from the sea")
_BODY: dict[str, Any] = {"prompt": PROMPTS[0], "max_tokens": 6, "top_k": 1, "seed": 1}
_TERMINAL = ("end", "error")
# A connection that the system would not serve, or cut: nothing was accepted, or the client knows.
CUT = "cut"
Ask = Callable[[Server], str]


def streamed(server: Server) -> str:
    """A streaming completion: what came of it."""
    text, lines = "", list[str]()
    try:
        body = {**_BODY, "stream": True}
        url = server.url + "/v1/completions"
        with http.stream("POST", url, json=body, timeout=PATIENCE_S) as answer:
            if answer.status_code != 200:
                answer.read()
                return f"status {answer.status_code}: {_error_of(answer)}"
            lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
    except httpx.TimeoutException:
        raise AssertionError("the stream hangs") from None
    except httpx.TransportError:
        return CUT
    assert lines, "a stream without an event"
    if lines[-1] != "[DONE]":
        raise AssertionError(f"a stream that ends with {lines[-1]!r}")
    for line in lines[:-1]:
        event = json.loads(line)
        if "error" in event:
            return f"event: {event['error']['message']}"
        text += event["choices"][0]["text"] if event["choices"] else ""
    return "text: " + text


def job(server: Server) -> str:
    """A job: exactly one terminal event."""
    body = {"job_id": "j1", "prompt": PROMPTS[1], "max_tokens": 6, "top_k": 1, "seed": 1}
    kinds, text, said = list[str](), "", ""
    try:
        url = server.url + "/execute"
        with http.stream("POST", url, json=body, timeout=PATIENCE_S) as answer:
            if answer.status_code != 200:
                answer.read()
                return f"status {answer.status_code}: {_error_of(answer)}"
            for line in answer.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    event = json.loads(line[6:])
                    kinds.append(event["type"])
                    text += event.get("t", "")
                    said = event.get("message", said)
    except httpx.TimeoutException:
        raise AssertionError("the job hangs") from None
    except httpx.TransportError:
        return CUT
    ends = [kind for kind in kinds if kind in _TERMINAL]
    assert ends == kinds[-1:], f"not one terminal event: {kinds}"
    return f"text: {text}" if ends == ["end"] else f"event: {said}"


def chat(server: Server) -> str:
    """A chat, answered at once."""
    body = {"messages": [{"role": "user", "content": PROMPTS[2]}], "max_tokens": 6,
            "top_k": 1, "seed": 1}  # fmt: skip
    try:
        answer = http.post(server.url + "/v1/chat/completions", json=body, timeout=PATIENCE_S)
    except httpx.TimeoutException:
        raise AssertionError("the chat hangs") from None
    except httpx.TransportError:
        return CUT
    if answer.status_code != 200:
        return f"status {answer.status_code}: {_error_of(answer)}"
    return "text: " + answer.json()["choices"][0]["message"]["content"]


ASKS: tuple[Ask, ...] = (streamed, job, chat)


def _error_of(answer: httpx.Response) -> str:
    """The message of an error, which must be a whole one."""
    error = answer.json()["error"]
    assert error["message"], "an error without a message"
    return str(error["message"])


class Clients:
    """Three clients of one worker, and what they get when nothing fails."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.golden = [ask(server) for ask in ASKS]
        assert all(text.startswith("text: ") for text in self.golden), self.golden

    def ask(self) -> list[str]:
        """What became of the three; each was answered, or refused, or failed with a word."""
        return [ask(self.server) for ask in ASKS]

    def is_well(self) -> None:
        """Assert that nothing is left behind, and that all are answered as before."""
        until(self._is_idle)
        assert self.ask() == self.golden

    def _is_idle(self) -> bool:
        health = self.server.health()
        return (health["status"], health["slots_processing"], health["queue_depth"]) == (
            "ok", 0, 0,
        )  # fmt: skip

    def has_left(self) -> bool:
        """Whether the process has ended, or ends: a failed worker answers 503 until then."""
        if self.server.process.poll() is not None:
            return True
        try:
            return self.server.health().get("status") not in ("ok", "no slot available")
        except httpx.TransportError:
            return True
        except (KeyError, ValueError):
            return True
