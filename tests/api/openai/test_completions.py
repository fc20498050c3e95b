"""POST /v1/completions over a real socket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import http
from tests.support.programs.processes import Server

# Roundings depend on what else is in a batch and on what the cache held: ln p may differ by 0.002.
# So texts are compared only where a choice is clear: the likeliest 20 tokens after "Hello" are at
# least 0.02 ahead of the next ones, and a toss between two tokens is not decided by so little.
CLEAR = 20
TOSSED: dict[str, Any] = {"temperature": 1, "logit_bias": {"72": 100, "73": 100}}


def complete(server: Server, **fields: Any) -> dict[str, Any]:
    answer = server.post({"prompt": "Hello", "max_tokens": 6, "ignore_eos": True, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(server: Server, **fields: Any) -> list[Any]:
    """The data of each event of a streamed answer; [DONE] as text."""
    body = {"prompt": "Hello", "max_tokens": 6, "ignore_eos": True, "stream": True, **fields}
    with http.stream("POST", server.url + "/v1/completions", json=body) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        raw = answer.read().decode()
    assert "\r" not in raw
    frames = raw.split("\n\n")
    assert frames.pop() == ""
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    data = [frame.removeprefix("data: ") for frame in frames]
    return [item if item == "[DONE]" else json.loads(item) for item in data]


def test_shape(server: Server) -> None:
    """An answer has the fields that OpenAI clients read, with usage and timings."""
    answer = complete(server)
    assert answer["object"] == "text_completion"
    assert answer["model"] == "org/tiny"
    assert answer["id"].startswith("cmpl-")
    (choice,) = answer["choices"]
    assert choice["index"] == 0
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"] is None
    usage = answer["usage"]
    assert usage["completion_tokens"] == 6
    assert usage["total_tokens"] == usage["prompt_tokens"] + 6
    assert answer["timings"]["predicted_n"] == 6
    assert answer["timings"]["prompt_ms"] > 0


def test_stream_equals_whole(server: Server) -> None:
    """A streamed answer adds up to the whole one, ends with one reason, then [DONE]."""
    whole = complete(server, temperature=0, max_tokens=CLEAR)
    stream = events(server, temperature=0, max_tokens=CLEAR)
    assert stream.pop() == "[DONE]"
    assert "".join(event["choices"][0]["text"] for event in stream) == whole["choices"][0]["text"]
    reasons = [event["choices"][0]["finish_reason"] for event in stream]
    assert reasons == [None] * (len(stream) - 1) + ["length"]
    assert all("usage" not in event for event in stream)


def test_stream_usage(server: Server) -> None:
    """include_usage adds one event without choices before [DONE], and no other has usage."""
    stream = events(server, stream_options={"include_usage": True})
    assert stream.pop() == "[DONE]"
    last = stream.pop()
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 6
    assert not any("usage" in event for event in stream)


def test_continuous_usage(server: Server) -> None:
    """continuous_usage_stats puts the counts so far on each event."""
    stream = events(server, stream_options={"include_usage": True, "continuous_usage_stats": True})[
        :-1
    ]
    counts = [event["usage"]["completion_tokens"] for event in stream]
    assert counts == sorted(counts)
    assert counts[-1] == 6


def test_greedy_repeats_and_seeds_vary(server: Server) -> None:
    """Temperature 0 and equal seeds repeat; different seeds differ."""

    def text(**fields: Any) -> str:
        return complete(server, max_tokens=CLEAR, **fields)["choices"][0]["text"]

    assert text(temperature=0) == text(temperature=0)
    assert text(seed=7, **TOSSED) == text(seed=7, **TOSSED)
    assert len({text(seed=seed, **TOSSED) for seed in range(5)}) > 1


def test_lists_and_copies(server: Server) -> None:
    """A list of prompts with n gives len(prompts) x n choices in order."""
    answer = complete(server, prompt=["a", "b"], n=2, temperature=0)
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    assert choices[0]["text"] == choices[1]["text"]
    assert choices[2]["text"] == complete(server, prompt="b", temperature=0)["choices"][0]["text"]


def test_streamed_copies_are_interleaved_by_index(server: Server) -> None:
    """Events of several choices carry their index and add up to the whole answer's texts."""
    whole = complete(server, prompt=["a", "b"], temperature=0, max_tokens=8)
    texts = {0: "", 1: ""}
    for event in events(server, prompt=["a", "b"], temperature=0, max_tokens=8)[:-1]:
        texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert texts == {choice["index"]: choice["text"] for choice in whole["choices"]}


def test_best_of_is_the_likeliest(server: Server) -> None:
    """best_of returns the continuations with the best mean logprob."""
    several = complete(server, n=4, seed=3, logprobs=0, **TOSSED)
    best = complete(server, n=1, best_of=4, seed=3, logprobs=0, **TOSSED)

    def mean(choice: dict[str, Any]) -> float:
        values = choice["logprobs"]["token_logprobs"]
        return sum(values) / len(values)

    likeliest = max(several["choices"], key=mean)
    assert len({choice["text"] for choice in several["choices"]}) > 1
    assert best["choices"][0]["text"] == likeliest["text"]
    assert mean(best["choices"][0]) == pytest.approx(mean(likeliest), abs=0.01)


def test_scoring_token_arrays(server: Server) -> None:
    """echo with logprobs over token ids: prompt + 1 entries, first null, no BOS added."""
    prompts = [[1, 5, 6, 7, 8], [3, 9]]
    answer = complete(server, prompt=prompts, max_tokens=1, logprobs=1, echo=True, temperature=0)
    for prompt, choice in zip(prompts, answer["choices"], strict=True):
        logprobs = choice["logprobs"]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            assert len(logprobs[name]) == len(prompt) + 1
        assert logprobs["token_logprobs"][0] is None
        assert logprobs["top_logprobs"][0] is None
        generated = logprobs["token_logprobs"][-1]
        assert generated == max(logprobs["top_logprobs"][-1].values())


def test_long_scoring_is_chunked(server: Server) -> None:
    """A prompt with more tokens than a step scores gets each entry once."""
    prompt = [1 + i % 300 for i in range(500)]
    answer = complete(server, prompt=prompt, max_tokens=0, logprobs=0, echo=True)
    logprobs = answer["choices"][0]["logprobs"]["token_logprobs"]
    assert len(logprobs) == 500
    assert all(value < 0 for value in logprobs[1:])


def test_echo_of_text(server: Server) -> None:
    """echo repeats the text; offsets begin at 0 and skip an added BOS and space."""
    answer = complete(server, prompt="Hello you", echo=True, logprobs=0, temperature=0)
    choice = answer["choices"][0]
    assert choice["text"].startswith("Hello you")
    logprobs = choice["logprobs"]
    assert logprobs["text_offset"][0] == 0
    count = answer["usage"]["prompt_tokens"] - 1
    assert "".join(logprobs["tokens"][:count]) == "Hello you"


def test_stop(server: Server) -> None:
    """The text ends before the stop string, with reason stop, streamed or not."""
    text = complete(server, temperature=0, max_tokens=CLEAR)["choices"][0]["text"]
    stop = text[6:8]
    answer = complete(server, temperature=0, max_tokens=CLEAR, stop=[stop])
    assert answer["choices"][0]["text"] == text[: text.index(stop)]
    assert answer["choices"][0]["finish_reason"] == "stop"
    stream = events(server, temperature=0, max_tokens=CLEAR, stop=stop)[:-1]
    assert "".join(e["choices"][0]["text"] for e in stream) == text[: text.index(stop)]


def test_logit_bias_and_bans(server: Server) -> None:
    """A bias of 100 forces a token, -100 keeps it away."""
    forced = complete(server, logit_bias={"72": 100}, logprobs=0, max_tokens=4)
    tokens = forced["choices"][0]["logprobs"]["tokens"]
    assert len(set(tokens)) == 1
    greedy = complete(server, temperature=0, logprobs=0, max_tokens=1)
    first = greedy["choices"][0]["logprobs"]["tokens"][0]
    assert first != tokens[0]


def test_min_tokens(server: Server) -> None:
    """min_tokens holds back the end of generation, then lets it come."""
    ends = {"logit_bias": {"2": 30}, "ignore_eos": False}
    assert complete(server, **ends)["usage"]["completion_tokens"] == 1
    answer = complete(server, **ends, min_tokens=3)
    assert answer["usage"]["completion_tokens"] == 4
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_json_schema(server: Server) -> None:
    """A schema makes even a random model write JSON that fits it."""
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 2]}},
        "required": ["ok", "n"],
    }
    answer = complete(server, json_schema=schema, max_tokens=300, ignore_eos=False, seed=1)
    value = json.loads(answer["choices"][0]["text"])
    assert isinstance(value["ok"], bool)
    assert value["n"] in (1, 2)


def test_grammar_with_nothing_left(server: Server) -> None:
    """A text that is whole ends, also where its end is banned."""
    answer = server.post(
        {"prompt": "a", "grammar": 'root ::= "x"', "ignore_eos": True, "max_tokens": 9}
    )
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("x", "stop")


@pytest.mark.parametrize("value", [None, 0, 16])
def test_null_is_not_given(server: Server, value: int | None) -> None:
    """null means the default, as LangChain sends it; integers pass for floats."""
    answer = server.post(
        {"prompt": ["Hi"], "max_tokens": 16, "temperature": 0, "logprobs": None, "n": 1}
        | {"seed": value, "frequency_penalty": 0, "top_p": 1, "unknown_field": {"x": [1]}}
    )
    assert answer.status_code == 200
