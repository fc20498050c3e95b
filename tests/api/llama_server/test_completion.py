"""llama-server's /completion: prompts in all shapes, answers in its shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import http
from tests.support.cases import for_each
from tests.support.programs.processes import Server

STORY: dict[str, Any] = {"prompt": "Once upon a time", "n_predict": 6, "temperature": 0}


def post(server: Server, **fields: Any) -> Any:
    answer = http.post(server.url + "/completion", json=STORY | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(server: Server, **fields: Any) -> list[dict[str, Any]]:
    answer = http.post(server.url + "/completion", json=STORY | {"stream": True} | fields)
    frames = [frame for frame in answer.text.split("\n\n") if frame.startswith("data: ")]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def test_whole_and_in_events(server: Server) -> None:
    """One text; ids where they are asked for, and in events."""
    whole = post(server, return_tokens=True)
    assert (whole["stop"], whole["stop_type"], whole["tokens_predicted"]) == (True, "limit", 6)
    assert len(whole["tokens"]) == whole["timings"]["predicted_n"] == 6
    assert whole["generation_settings"]["n_predict"] == 6
    biased = post(server, ignore_eos=True, logit_bias={"7": 2})["generation_settings"]
    assert biased["logit_bias"][0] == {"token": 7, "bias": 2.0}
    assert {each["bias"] for each in biased["logit_bias"][1:]} == {None}
    assert whole["prompt"].endswith("Once upon a time")
    assert http.post(server.url + "/completions", json=STORY).json()["tokens"] == []
    *parts, last = events(server)
    assert [part["stop"] for part in parts] == [False] * 6
    assert "".join(part["content"] for part in parts) == whole["content"]
    assert [part["tokens"][0] for part in parts] == whole["tokens"]
    assert (last["stop"], last["content"], last["tokens"]) == (True, "", [])


def test_prompts(server: Server) -> None:
    """Texts, ids, both in one, objects, and several of them with their answers in order."""
    text = "Once upon a time"
    ids = http.post(server.url + "/tokenize", json={"content": text, "add_special": True})
    tokens = ids.json()["tokens"]
    content = post(server)["content"]
    assert post(server, prompt=tokens)["content"] == content
    assert post(server, prompt={"prompt_string": text})["content"] == content
    several = post(server, prompt=[text, tokens, {"prompt_string": text}])
    assert [one["content"] for one in several] == [content] * 3
    assert [one["index"] for one in several] == [0, 1, 2]
    assert post(server, prompt=[1, 5, "and", 7])["tokens_evaluated"] >= 4
    assert [one["content"] for one in post(server, n_cmpl=2)] == [content] * 2
    streamed = events(server, prompt=[text, tokens])
    for index in (0, 1):
        parts = [event["content"] for event in streamed if event["index"] == index]
        assert "".join(parts) == content
    assert sum(event["stop"] for event in streamed) == 2


def test_what_stops(server: Server) -> None:
    """A stop text is named; time and indents end an answer behind a line's end."""
    whole = post(server, n_predict=40)["content"]
    stop = whole[10:13]
    stopped = post(server, n_predict=40, stop=[stop])
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", stop)
    assert stopped["content"] == whole[: whole.index(stop)]
    lines: dict[str, Any] = {
        "grammar": 'root ::= ("    " [a-z] "\\n"){3} [a-z]{4} ("\\n" [a-z]){50}',
        "n_predict": 90,
    }
    free = post(server, **lines)
    assert free["content"].count("\n") > 4
    indented = post(server, **lines, n_indent=4)
    assert indented["content"].count("\n") == 2
    assert indented["stop_type"] == "limit"
    late = post(server, **lines, t_max_predict_ms=0.001)
    assert 0 < late["content"].count("\n") < 4  # a step may write more than one line
    assert late["stop_type"] == "limit"
    *parts, last = events(server, **lines, n_indent=4)
    assert last["stop"]
    assert "".join(part["content"] for part in parts).startswith(indented["content"])


def test_probabilities(server: Server) -> None:
    """Each token with the likeliest ones, whole and in events."""
    for scores in (
        post(server, n_probs=3)["completion_probabilities"],
        [event["completion_probabilities"][0] for event in events(server, n_probs=3)[:-1]],
    ):
        assert len(scores) == 6
        assert all(len(score["top_logprobs"]) == 3 and score["logprob"] <= 0 for score in scores)
        assert all(each["id"] >= 0 for score in scores for each in score["top_logprobs"])
    stop = {"stop": [post(server)["content"][3:6]], "n_probs": 3}
    whole = post(server, **stop)["completion_probabilities"]
    told = [
        score
        for event in events(server, **stop)[:-1]
        for score in event["completion_probabilities"]
    ]
    assert [score["id"] for score in told] == [score["id"] for score in whole]
    assert len(whole) < 6


DRAWS: list[dict[str, Any]] = [
    {"temperature": 0.8, "top_p": 0.7}, {"temperature": 1, "top_k": 3}, {"temperature": 0},
    {"temperature": 1, "mirostat": 2}, {"temperature": 1, "top_k": 0, "logit_bias": {"300": -100}},
]  # fmt: skip


@for_each("draw", DRAWS)
def test_probabilities_that_samplers_left(server: Server, draw: dict[str, Any]) -> None:
    """Of each token, in the same text; where less is left than asked for their sum is 1."""
    asked = {**draw, "n_probs": 5, "seed": 5}
    plain = post(server, **asked)
    told = post(server, **asked, post_sampling_probs=True)
    assert told["content"] == plain["content"]
    for score in told["completion_probabilities"]:
        top = [each["prob"] for each in score["top_probs"]]
        assert 0 < score["prob"] <= top[0] <= 1
        assert top == sorted(top, reverse=True)
        assert len(top) == 5 or sum(top) == pytest.approx(1, abs=1e-5)


def test_progress(server: Server) -> None:
    """Events say how far the prompt is read, before any text."""
    asked: dict[str, Any] = {"return_progress": True, "timings_per_token": True}
    told = events(server, prompt="A very new beginning of a story", **asked)
    first, second = told[:2]
    assert first["prompt_progress"]["cache"] == first["prompt_progress"]["processed"]
    assert second["prompt_progress"]["total"] == second["prompt_progress"]["processed"]
    assert (first["content"], first["tokens"], first["stop"]) == ("", [], False)
    counts = [event["timings"]["predicted_n"] for event in told if event["tokens"]]
    assert counts == list(range(1, 7))


REFUSED: list[dict[str, Any]] = [
    {"prompt": None}, {"prompt": []}, {"prompt": [[]]}, {"prompt": [True]},
    {"prompt": [1, None]}, {"prompt": [-1]}, {"prompt": 5}, {"prompt": [10**9]},
    {"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}}, {"prompt": [{"a": 1}]},
    {"post_sampling_probs": True, "grammar": "root ::= \"a\""}, {"n_probs": 101},
    {"samplers": ["top_k", "none"]},
    {"samplers": ["infill"], "ignore_eos": True},
]  # fmt: skip


@for_each("fields", REFUSED)
def test_refused(server: Server, fields: dict[str, Any]) -> None:
    """What cannot be is named, and the next request is answered."""
    answer = http.post(server.url + "/completion", json=STORY | fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == next(iter(fields))
    assert post(server)["tokens_predicted"] == 6


OTHERS: list[dict[str, Any]] = [
    {"dynatemp_range": 0.5, "dynatemp_exponent": 2}, {"top_n_sigma": 1}, {"min_keep": 2},
    {"adaptive_target": 0.5, "adaptive_decay": 0.5}, {"samplers": ["top_k", "top_p", "infill"]},
    {"samplers": "kpt", "top_k": 3},
]  # fmt: skip


@for_each("fields", OTHERS)
def test_samplers(server: Server, fields: dict[str, Any]) -> None:
    """Those beside the usual ones, one by one."""
    told = post(server, **fields, temperature=1, seed=1)
    assert told["stop_type"] in ("eos", "limit")
    again = post(server, **fields, temperature=1, seed=1)
    assert again["content"] == told["content"]


def test_streams_end_as_whole_answers_do(server: Server) -> None:
    """What an indent cuts off is not told before, and figures are there."""
    text = '"    a\\n   b\\n\\n  c\\nd"'
    fields: dict[str, Any] = {"grammar": f"root ::= {text}", "n_predict": 60, "n_probs": 2}
    for indent, expected in (
        (3, "    a\n   b\n"),
        (2, "    a\n   b\n\n  c"),
        (1, "    a\n   b\n\n  c"),
    ):
        whole = post(server, **fields, n_indent=indent)
        *parts, last = events(server, **fields, n_indent=indent)
        assert whole["content"] == "".join(part["content"] for part in parts) == expected
        assert min(each["timings"]["prompt_ms"] for each in (whole, last)) > 0
        assert "completion_probabilities" not in last
    only = ["content", "timings/predicted_n"]
    assert sorted(events(server, response_fields=only)[-1]) == only
