"""Requests of all kinds, and whether two workers answer them alike."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.support import http
from tests.support.programs.processes import Server
from worker.demo import HELDOUT_PATH

# Rows that are computed together differ from one alone by 1e-6: so close the two likeliest of some
# 30,000 tokens come once in a hundred runs.
EXACT = ("--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off")
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
FORM = {
    "type": "object",
    "properties": {
        "name_of_the_place": {"enum": ["garden", "kitchen", "market"]},
        "number_of_animals": {"type": "integer", "minimum": 0, "maximum": 99},
        "is_far_away": {"type": "boolean"},
    },
    "required": ["name_of_the_place", "number_of_animals", "is_far_away"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "look_at_a_place", "parameters": FORM}}
# What differs from one answer to the same request to the next, and lists with a place for each.
OWN = frozenset({"id", "created", "timings", "prompt_tokens_details", "cached_tokens"})
GROWING = frozenset({"text", "content", "arguments", "reasoning_content"})


def bodies(number: int) -> list[tuple[str, dict[str, Any]]]:
    """(path, body) of each kind of request, about a text that is written again."""
    draw = random.Random(number)
    text = draw.choice(HELDOUT_PATH.read_text().split("\n\n"))[:400]
    begun = {"prompt": f"{text}\n\n{text[: draw.randrange(20, 90)]}", "max_tokens": 70}
    said = {"messages": [{"role": "user", "content": text[:200]}], "max_tokens": 70}
    called = said | {"tools": [TOOL], "tool_choice": "required"}
    form = {"type": "json_schema", "json_schema": {"name": "form", "schema": FORM}}
    return [
        (COMPLETIONS, begun),
        (COMPLETIONS, begun | {"stop": draw.choice(text.split())}),
        (COMPLETIONS, begun | {"logprobs": 2}),
        (COMPLETIONS, begun | {"logprobs": 1, "echo": True, "max_tokens": 20}),
        (COMPLETIONS, begun | {"n": 3, "echo": True}),
        (COMPLETIONS, begun | {"stream": True, "stream_options": {"include_usage": True}}),
        (COMPLETIONS, begun | {"temperature": 0.8, "seed": number}),
        (COMPLETIONS, begun | {"guided_regex": "(The|A) (small|great) animal (said|was) [a-z ]+"}),
        (CHAT, said),
        (CHAT, said | {"stream": True, "logprobs": True, "top_logprobs": 2}),
        (CHAT, called),
        (CHAT, called | {"stream": True, "max_tokens": draw.randrange(1, 70)}),
        (CHAT, said | {"response_format": form}),
        (CHAT, said | {"response_format": form, "stop": "animals", "logprobs": True}),
    ]


def grown(old: Any, new: Any, key: str = "") -> Any:
    """Events of a stream as one answer."""
    kind = old.__class__ if old.__class__ is new.__class__ else None
    if kind is dict:
        return old | {name: grown(old.get(name), value, name) for name, value in new.items()}
    if kind is list:
        if not all("index" in each for each in [*old, *new]):
            return old + new
        places = {each["index"]: each for each in old}
        for each in new:
            places[each["index"]] = grown(places.get(each["index"]), each)
        return list(places.values())
    if key in GROWING and isinstance(old, str):
        return old + (new or "")
    return old if new is None else new


def answer(server: Server, path: str, body: dict[str, Any], leave: int | None = None) -> Any:
    """All that a client sees, without times; of a stream that is left, the first events."""
    body = {"temperature": 0, **body}
    if not body.get("stream"):
        return server.post(body, path).json()
    found: Any = None
    with http.stream("POST", server.url + path, json=body) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                found = grown(found, json.loads(line[6:]))
                leave = leave and leave - 1
            if leave == 0:
                break
    return found


def check_same(one: Any, other: Any, place: str = "", *, within: float = 1e-3) -> float:
    """Assert that two answers differ in times only, and in numbers by rounding: at most by what is
    returned."""
    assert one.__class__ is other.__class__, place
    kind, pairs = one.__class__, list[tuple[Any, Any, Any]]()
    if kind is dict:
        assert one.keys() == other.keys(), place
        pairs = [(key, one[key], other[key]) for key in one.keys() - OWN]
    elif kind is list:
        assert len(one) == len(other), place
        pairs = [(index, *two) for index, two in enumerate(zip(one, other, strict=True))]
    elif kind is float:
        assert one == pytest.approx(other, abs=within), place
        return abs(one - other)
    else:
        assert one == other, place
    apart = [check_same(a, b, f"{place}.{name}", within=within) for name, a, b in pairs]
    return max(apart, default=0.0)
