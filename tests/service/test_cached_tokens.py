"""Each reply says how many tokens of its prompt the cache gave."""

from __future__ import annotations

import contextlib
import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.api.jobs.client import execute
from tests.support import http
from tests.support.programs.processes import Server, serving
from worker.engine.drafts.rounds import in_common

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SAMPLING = {"max_tokens": 4, "temperature": 0, "ignore_eos": True}
LEAST = 64  # of a repeated prompt's tokens, wherever the cache may cut


def body_of(path: str, **fields: Any) -> dict[str, Any]:
    """With a prompt of 100 to 200 tokens that nobody sent before."""
    text = f"{uuid.uuid4().hex} and the one who sat there " * 3
    prompt = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    return {**prompt, **SAMPLING, **fields}


def events(server: Server, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    answer = http.post(server.url + path, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    lines = answer.text.split("\n\n")[:-2]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def cached(usage: dict[str, Any]) -> int:
    return usage["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_plain_and_streamed(server: Server, path: str) -> None:
    """The usage and llama-server's timings say the same, whole and streamed."""
    body = body_of(path)
    first, second = (http.post(server.url + path, json=body).json() for _ in range(2))
    size = first["usage"]["prompt_tokens"]
    assert cached(first["usage"]) < 16  # a template's first words, at most
    assert LEAST <= cached(second["usage"]) <= size
    assert second["timings"]["cache_n"] == cached(second["usage"])
    assert second["timings"]["prompt_n"] == size - cached(second["usage"])
    streamed = events(server, path, {**body, "stream_options": {"include_usage": True}})
    assert LEAST <= cached(streamed[-1]["usage"]) <= size
    assert streamed[-2]["timings"]["cache_n"] == cached(streamed[-1]["usage"])
    assert events(server, path, body)[-1]["timings"]["cache_n"] >= LEAST


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_copies_count_once(server: Server, path: str) -> None:
    """Of several answers to a new prompt one is computed: the cache gave nothing of it."""
    body = body_of(path, n=3)
    first, second = (http.post(server.url + path, json=body).json() for _ in range(2))
    assert cached(first["usage"]) < 16
    assert (
        first["timings"]["prompt_n"] + first["timings"]["cache_n"]
        == (first["usage"]["prompt_tokens"])
    )
    assert LEAST <= cached(second["usage"]) <= second["usage"]["prompt_tokens"]


TASK, THOUGHT, RESULT, LAST, OTHER = (
    [100 + (first + number) % 200 for number in range(size)]
    for first, size in ((0, 150), (30, 100), (60, 100), (90, 100), (120, 100))
)
CHANGES = {
    "the last message is another": (TASK + THOUGHT + RESULT + OTHER, 350),
    "a thought is dropped": (TASK + RESULT + LAST, 150),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_stands_behind_a_change_is_read_again(server: Server, change: str) -> None:
    """What stands before it comes from the cache, in pieces of 128 tokens, and usage says so."""
    prompt, known = CHANGES[change]
    server.post({"prompt": TASK + THOUGHT + RESULT + LAST, **SAMPLING})
    body = server.post({"prompt": prompt, **SAMPLING}).json()
    assert known - 128 < cached(body["usage"]) <= known
    assert body["timings"]["prompt_n"] == len(prompt) - cached(body["usage"])


def conversation(result: str) -> dict[str, Any]:
    """A chat in whose middle a tool gave this."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = [
        {"role": "user", "content": "Look at the garden and tell what is there. " * 4},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
        {"role": "user", "content": "And what else did you see there, and who was with you?"},
    ]
    return {"messages": said, **SAMPLING}


@pytest.mark.parametrize("place", ["cells", "memory", "disk"])
def test_a_chat_whose_result_is_trimmed(place: str, tmp_path: Path) -> None:
    """It comes from the cache up to the change, wherever its state is."""
    found = "There was a cat, a small dog and a bird that sang all day. " * 8
    whole, trimmed = conversation(found), conversation(found[:240] + " [cut]")
    more = ("--cache-dir", tmp_path) if place == "disk" else ()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving("-np", "1", *more))
        assert cached(server.post(whole, CHAT).json()["usage"]) == 0
        if place == "memory":  # the only slot is another one's
            server.post({"prompt": OTHER, **SAMPLING})
        if place == "disk":
            server.process.terminate()
            assert server.process.wait(60) == 0
            server = stack.enter_context(serving("-np", "1", *more))
        prompts = [
            server.post({"content": server.post(chat, "/apply-template").json()["prompt"]},
                        "/tokenize").json()["tokens"]
            for chat in (whole, trimmed)
        ]  # fmt: skip
        known = in_common(*map(np.array, prompts))
        assert 150 < known < len(prompts[1]) - 20
        body = server.post(trimmed, CHAT).json()
        assert known - 128 < cached(body["usage"]) <= known + 1  # one that begins a text
        assert body["timings"]["prompt_n"] == body["usage"]["prompt_tokens"] - cached(body["usage"])


def test_several_prompts(server: Server) -> None:
    """What the cache gave is added up over prompts, not over copies."""
    texts = [body_of(COMPLETIONS)["prompt"] for _ in range(2)]
    body = {"prompt": texts, "n": 2, **SAMPLING}
    server.post(body)
    usage = server.post(body).json()["usage"]
    assert 2 * LEAST <= cached(usage) <= usage["prompt_tokens"]


def test_while_it_is_not_known(server: Server) -> None:
    """A count so far does not name a number before the answer has ended."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    # With a seed: a guess that is right would end the answer in a step that tells several tokens.
    body = body_of(COMPLETIONS, stream_options=options, seed=1)
    server.post(body)
    *before, end, last = events(server, COMPLETIONS, body)
    assert before
    assert all("prompt_tokens_details" not in event["usage"] for event in before)
    assert LEAST <= cached(end["usage"]) == cached(last["usage"]) <= last["usage"]["prompt_tokens"]


def test_jobs(server: Server) -> None:
    """A job's end says it, and the reply of /v1/infer."""
    body = body_of("/execute")
    ends = [execute(server, **body)[-1][1] for _ in range(2)]
    assert ends[0]["cached_tokens"] < 16
    assert ends[1]["cached_tokens"] >= LEAST
    assert server.post(body, "/v1/infer").json()["cached_tokens"] >= LEAST
