"""Sends stories to an OpenAI-compatible address and measures what comes back."""

from __future__ import annotations

import http.client
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import msgspec

from benchmarks.peers.processes import PeerError
from benchmarks.session.story import Ask

_LIMIT_S = 600.0


class AskFigures(msgspec.Struct, frozen=True):
    """What one request took. `computed` and `cached` are tokens of its prompt.

    taken  guesses that were right; 0 where the server does not say
    """

    kind: str
    seconds: float
    ttft: float
    computed: int
    cached: int
    written: int
    taken: int


class SessionFigures(msgspec.Struct, frozen=True):
    """What a session took: seconds of the whole, and each agent's requests in their order."""

    seconds: float
    agents: list[list[AskFigures]]

    def totals(self) -> dict[str, float]:
        """Seconds and counts over all requests; times to the first token are those of turns."""
        asked = [one for agent in self.agents for one in agent]
        waits = [one.ttft for one in asked if one.kind == "turn"]
        return {
            "seconds": self.seconds, "ttft_median_s": statistics.median(waits),
            "ttft_max_s": max(waits), "title_s": max(o.seconds for o in asked if o.kind == "title"),
            "computed": sum(one.computed for one in asked),
            "cached": sum(one.cached for one in asked),
            "written": sum(one.written for one in asked),
            "taken": sum(one.taken for one in asked),
        }  # fmt: skip


def replay(
    url: str, stories: Sequence[Sequence[Ask]], *, recited: bool, model: str = ""
) -> SessionFigures:
    """Have each agent ask its story, all at once. Raises PeerError where an answer is none.

    recited: the model is one of `write_reciting`: what it says must be what is prescribed. Else
    each answer has as many tokens as its text has groups of four letters.
    """

    def work(asks: Sequence[Ask]) -> list[AskFigures]:
        return [_ask(url, ask, recited, model) for ask in asks]

    began = time.monotonic()
    with ThreadPoolExecutor(len(stories)) as pool:
        agents = list(pool.map(work, stories))
    return SessionFigures(time.monotonic() - began, agents)


def _ask(url: str, ask: Ask, recited: bool, model: str) -> AskFigures:
    body: dict[str, object] = {
        "model": model, "messages": ask.messages, "temperature": 0, "stream": True,
        "max_tokens": len(ask.answer) // (1 if recited else 4),
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    if not recited:
        body["ignore_eos"] = True
    address = urlsplit(url)
    sent = time.monotonic()
    connection = http.client.HTTPConnection(address.netloc, timeout=_LIMIT_S)
    try:
        headers = {"Content-Type": "application/json"}
        path = f"{address.path.rstrip('/')}/chat/completions"
        connection.request("POST", path, msgspec.json.encode(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise PeerError(f"failed a {ask.kind}: HTTP {response.status}: {response.read(200)!r}")
        lines = ((time.monotonic(), line) for line in response)
        events = [
            (moment, msgspec.json.decode(line[6:]))
            for moment, line in lines
            if line.startswith(b"data: {")
        ]
    except (OSError, http.client.HTTPException) as error:
        raise PeerError(f"failed a {ask.kind}: {type(error).__name__}: {error}") from None
    finally:
        connection.close()
    return _figures(ask, events, sent, recited)


def _figures(
    ask: Ask, events: Sequence[tuple[float, dict[str, Any]]], sent: float, recited: bool
) -> AskFigures:
    said, first = "", 0.0
    usage: dict[str, Any] = {}
    timings: dict[str, Any] = {}
    for moment, event in events:
        if event.get("error"):
            raise PeerError(f"failed a {ask.kind}: {event['error']}")
        usage, timings = event.get("usage") or usage, event.get("timings") or timings
        for choice in event.get("choices") or ():
            if text := choice["delta"].get("content"):
                first, said = first or moment, said + text
    if recited and said.strip() != ask.answer.strip():
        raise PeerError(f"said {said!r} where {ask.answer!r} is prescribed")
    details: dict[str, Any] = usage.get("prompt_tokens_details") or {}
    cached: int = details.get("cached_tokens") or 0
    prompt: int = usage.get("prompt_tokens", 0)
    return AskFigures(
        ask.kind, events[-1][0] - sent, (first or events[-1][0]) - sent,
        prompt - cached, cached, usage.get("completion_tokens", 0),
        timings.get("draft_n_accepted") or 0,
    )  # fmt: skip
