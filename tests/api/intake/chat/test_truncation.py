"""`truncation: auto`: a conversation that outgrows the context loses whole old turns."""

from __future__ import annotations

import json
import random
from itertools import accumulate, pairwise
from typing import Any

import httpx
import pytest

from tests.support import http
from tests.support.programs.processes import Server
from worker.api.intake.chat.truncation import num_dropped

CHAT = "/v1/chat/completions"
CONTEXT = 2048  # of the server; a character is about a token of its model
SYSTEM = {"role": "system", "content": "You are a sailor. " * 5}
LAST = {"role": "user", "content": "What now?"}


def turn(number: int, length: int = 100) -> list[dict[str, Any]]:
    """A question with an answer, `length` characters each."""
    words = f"number {number} " + "the one who sat there and " * (length // 20)
    return [
        {"role": "user", "content": words[:length]},
        {"role": "assistant", "content": words[:length][::-1]},
    ]


def history(count: int, length: int = 100) -> list[dict[str, Any]]:
    return [SYSTEM, *(message for i in range(count) for message in turn(i, length)), LAST]


def ask(server: Server, path: str = CHAT, **fields: Any) -> httpx.Response:
    body = {"truncation": "auto", "max_tokens": 4, "temperature": 0, "ignore_eos": True, **fields}
    return http.post(server.url + path, json=body)


def whole(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("seed", range(5))
def test_what_is_dropped_changes_rarely(seed: int) -> None:
    """In 100 growing turns the beginning moves once for each half of the room for turns."""
    draw = random.Random(seed)
    limit, system = 4000, draw.choice([0, 300, 2000])
    room = limit - system
    sizes = [draw.randint(20, room // 5) for _ in range(100)]
    starts = [system + start for start in accumulate(sizes, initial=0)]
    dropped = list[int]()
    for count in range(1, 101):
        total = starts[count]  # the last of them is the turn that stays
        k = num_dropped(starts[:count], total, limit)
        rest = total - (starts[k] - system)
        assert rest <= limit
        assert total <= limit or rest - system >= room // 2 - 2 * max(sizes)
        dropped.append(k)
    changes = [(old, new) for old, new in pairwise(dropped) if old != new]
    assert all(old < new for old, new in changes)
    assert 1 <= len(changes) <= 2 * sum(sizes) // room


def test_a_conversation_of_60_turns(server: Server) -> None:
    """Every turn is answered, and reads little anew while the same turns are left out."""
    dropped, read = [0], list[int]()
    before = 0
    for count in range(60):
        answer = whole(ask(server, messages=history(count)))
        usage = answer["usage"]
        told = answer.get("truncated", {"messages": 0})["messages"]
        assert usage["prompt_tokens"] + 4 <= CONTEXT
        assert told % 2 == 0
        if told == dropped[-1]:
            # All but the last question, which stands elsewhere now, and a part of a block.
            assert usage["prompt_tokens_details"]["cached_tokens"] >= before - 200
        dropped.append(told)
        read.append(answer["timings"]["prompt_n"])
        before = usage["prompt_tokens"]
    changes = sum(old != new for old, new in pairwise(dropped))
    assert dropped == sorted(dropped)
    assert dropped[-1] > 60
    assert changes <= 15
    assert sum(read) < 60 * CONTEXT // 4


def test_what_is_left_out_is_told(server: Server) -> None:
    """The reply counts messages and tokens; /apply-template shows the prompt that is left."""
    messages = history(20)
    answer = whole(ask(server, messages=messages))
    told = answer["truncated"]
    kept = [SYSTEM, *messages[1 + told["messages"] :]]
    plain = whole(ask(server, messages=kept, truncation=None))
    assert "truncated" not in plain
    assert plain["choices"] == answer["choices"]
    assert plain["usage"]["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert told["tokens"] > CONTEXT // 4
    shown = whole(ask(server, "/apply-template", messages=messages))
    assert shown == whole(ask(server, "/apply-template", messages=kept, truncation="disabled"))


def test_streams_tell_it_twice(server: Server) -> None:
    """The first event says what was left out, and the one with the usage."""
    answer = ask(server, messages=history(20), stream=True, stream_options={"include_usage": True})
    lines = answer.text.split("\n\n")[:-2]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert [place for place, event in enumerate(events) if "truncated" in event] == [
        0,
        len(events) - 1,
    ]
    assert events[0]["truncated"] == events[-1]["truncated"]
    assert events[0]["truncated"]["messages"] > 0


def test_what_fits_is_left_alone(server: Server) -> None:
    """A conversation with room for its answer is the same with and without the field."""
    answers = [whole(ask(server, messages=history(3), truncation=t)) for t in ("auto", "disabled")]
    assert answers[0]["usage"]["prompt_tokens"] == answers[1]["usage"]["prompt_tokens"]
    assert "truncated" not in answers[0]


def test_room_for_the_answer(server: Server) -> None:
    """More room for the answer drops more; without max_tokens a quarter of the context is left."""
    messages = history(9)
    sizes = [
        whole(ask(server, messages=messages, max_tokens=max_tokens))["usage"]["prompt_tokens"]
        for max_tokens in (4, 1000, None)
    ]
    assert sizes[0] > CONTEXT * 3 // 4
    assert sizes[1] <= CONTEXT - 1000
    assert sizes[2] <= CONTEXT * 3 // 4


def test_much_too_long(server: Server) -> None:
    """A history of fifty contexts is shortened too."""
    answer = whole(ask(server, messages=history(500)))
    assert answer["truncated"]["messages"] > 900
    assert answer["usage"]["prompt_tokens"] > CONTEXT // 4


@pytest.mark.parametrize(
    ("path", "fields", "param", "code", "words"),
    [
        (CHAT, {"messages": history(20), "truncation": None}, "messages",
         "context_length_exceeded", "available context size"),
        (CHAT, {"messages": history(20), "truncation": "disabled"}, "messages",
         "context_length_exceeded", "available context size"),
        (CHAT, {"messages": [*history(4), {"role": "user", "content": "the " * 1000}]}, "messages",
         "context_length_exceeded", "available context size"),
        (CHAT, {"messages": [{"role": "user", "content": "x" * (2**21 + 1)}]}, "messages",
         "context_length_exceeded", "available context size"),
        (CHAT, {"messages": history(1), "truncation": "always"}, "truncation",
         "invalid_request", "auto or disabled"),
        (CHAT, {"messages": history(1), "truncation": True}, "truncation",
         "invalid_request", "must be"),
        ("/v1/completions", {"prompt": "hello"}, "truncation",
         "invalid_request", "a text has none. Use /v1/chat/completions."),
        ("/v1/completions", {"prompt": "hello", "truncation": "x"}, "truncation",
         "invalid_request", "auto or disabled"),
        ("/apply-template", {"messages": history(1), "truncation": "x"}, "truncation",
         "invalid_request", "auto or disabled"),
    ],
)  # fmt: skip
def test_refused(
    server: Server, path: str, fields: dict[str, Any], param: str, code: str, words: str
) -> None:
    """What cannot be shortened gets the error that it gets without; others are told what is."""
    answer = ask(server, path, **fields)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == (param, code)
    assert words in error["message"]
