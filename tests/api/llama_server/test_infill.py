"""Infill: the prompt that such models know, and llama-server's answers."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import http
from tests.support.facts import facts_with
from tests.support.models.ggufs import llama_gguf, u32
from tests.support.programs.processes import Server, serving
from worker.api.intake.prompts import Truncated
from worker.api.llama_server.prompts import place_of
from worker.api.llama_server.schemas import InfillRequest
from worker.budget import UNBOUNDED
from worker.errors import NotSupportedError, RequestError
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights
from worker.model.config import load_config

PRE, SUF, MID, REPO, SEP = range(300, 305)
PLACE = {"input_prefix": "def f(x):\n    ", "input_suffix": "\n    return y\n"}


def written(path: Path, **roles: int) -> Path:
    gguf = llama_gguf()
    for role, token in roles.items():
        gguf.keys[f"tokenizer.ggml.{role}_token_id"] = u32(token)
    return gguf.write(path)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("infill") / "coder.gguf"
    return written(path, fim_pre=PRE, fim_suf=SUF, fim_mid=MID, fim_rep=REPO, fim_sep=SEP)


@pytest.fixture(scope="module")
def server(model: Path) -> Generator[Server]:
    with serving("--model", model, "--ctx-size", "256", "-np", "1") as running:
        yield running


class Asking:
    """Prompts by one model's vocabulary, in a context of so many tokens."""

    def __init__(self, path: Path, weights: Weights, room: int = 256) -> None:
        self.vocab = Vocab(weights.handle, 64)
        self.facts = facts_with(vocab=self.vocab, max_length=room, config=load_config(path))

    def ids(self, text: str) -> list[int]:
        return self.vocab.tokenize(text, add_special=False, parse_special=False)

    def __call__(
        self, max_tokens: int | None = 8, **fields: Any
    ) -> tuple[list[int], Truncated | None]:
        body = msgspec.convert({**PLACE, **fields}, InfillRequest)
        prompt, truncated = place_of(body, max_tokens, self.facts, UNBOUNDED)
        return list(prompt.tokens), truncated


@pytest.fixture(scope="module")
def asking(model: Path) -> Generator[Asking]:
    with Weights(model, LoadOptions(n_gpu_layers=0, vocab_only=True)) as weights:
        yield Asking(model, weights)


def test_the_prompt(asking: Asking) -> None:
    """Other files, then the place; what is written there already stands before the suffix."""
    ids = asking.ids
    found, truncated = asking(prompt="y = ", input_extra=[{"text": "z", "filename": "a"}])
    bos = asking.vocab.bos
    place = [bos, PRE, *ids(PLACE["input_prefix"]), *ids("y = "), SUF, *ids(PLACE["input_suffix"])]
    others = [REPO, *ids("myproject\n"), SEP, *ids("a\n"), *ids("z"), SEP, *ids("filename\n")]
    assert (found, truncated) == ([*others, *place, MID], None)


def test_what_does_not_fit(asking: Asking) -> None:
    """The begin of the other files goes first, then the ends of the place that are far away."""
    extra = [{"text": "x " * 200}]
    found, truncated = asking(input_extra=extra)
    assert truncated
    assert len(found) == 256 - 8
    found, truncated = asking(input_prefix="p " * 300, input_suffix="s " * 300)
    middle = found.index(SUF)
    assert truncated
    assert len(found) == 256 - 8
    assert found[middle - 1] == asking.ids("p " * 300)[-1]
    assert found[middle + 1] == asking.ids("s " * 300)[0]
    assert middle > 2 * (len(found) - middle)
    with pytest.raises(RequestError, match="prompt is too long"):
        asking(prompt="w " * 300)


@pytest.mark.parametrize("name", PLACE)
def test_what_is_missing(asking: Asking, name: str) -> None:
    """Both sides of the place are needed."""
    with pytest.raises(RequestError, match=f"{name} is missing"):
        asking(**{name: None})


def test_a_model_that_knows_no_infill(tmp_path: Path) -> None:
    """501."""
    path = written(tmp_path / "plain.gguf", fim_pre=PRE)
    options = LoadOptions(n_gpu_layers=0, vocab_only=True)
    with Weights(path, options) as weights, pytest.raises(NotSupportedError):
        Asking(path, weights)()


def test_answers(server: Server) -> None:
    """Whole, in events, and only the fields that are asked for."""
    body: dict[str, Any] = {**PLACE, "n_predict": 6, "temperature": 0}
    whole = http.post(server.url + "/infill", json=body).json()
    assert (whole["stop"], whole["stop_type"], whole["tokens_predicted"]) == (True, "limit", 6)
    assert whole["timings"]["predicted_n"] == 6
    frames = http.post(server.url + "/infill", json={**body, "stream": True}).text.split("\n\n")
    events = [json.loads(frame.removeprefix("data: ")) for frame in frames if frame]
    assert [event["stop"] for event in events] == [False] * 6 + [True]
    assert "".join(event["content"] for event in events) == whole["content"]
    assert events[-1]["tokens_cached"] > 0
    fields = ["content", "timings/prompt_n", "timings/none", "content/none"]
    some = http.post(server.url + "/infill", json={**body, "response_fields": fields}).json()
    assert some == {"content": whole["content"], "timings/prompt_n": 0}


# llama.vim's, and llama.vscode's without `response_fields`.
EDITORS: dict[str, Any] = {
    "id_slot": 0, "input_extra": [{"filename": "a.py", "text": "a = 1", "time": 5}],
    "prompt": "y =", "n_predict": 128, "n_indent": 4, "stop": [], "top_k": 40, "top_p": 0.9,
    "samplers": ["top_k", "top_p", "infill"], "stream": False, "cache_prompt": True,
    "t_max_prompt_ms": 500, "t_max_predict_ms": 1000,
    "response_fields": ["content", "tokens_predicted", "stop_type", "warnings"],
}  # fmt: skip


def test_what_editors_send(server: Server) -> None:
    """All of it counts; the sampler ends what is no good guess any more."""
    told = http.post(server.url + "/infill", json={**PLACE, **EDITORS}).json()
    assert told["tokens_predicted"] < 128
    assert sorted(told) == ["content", "stop_type", "tokens_predicted"]
    body = {**PLACE, **EDITORS, "response_fields": None}
    assert http.post(server.url + "/infill", json=body).json()["stop_type"] == "eos"


def test_nothing_is_written(server: Server) -> None:
    """Editors read a prompt into the cache so."""
    body: dict[str, Any] = {**PLACE, "input_prefix": "class A:\n", "n_predict": 0}
    first = http.post(server.url + "/infill", json=body).json()
    assert (first["content"], first["tokens_predicted"]) == ("", 0)
    again = http.post(server.url + "/infill", json={**body, "n_predict": 1}).json()
    assert again["tokens_cached"] > first["tokens_cached"]


def test_suffix_of_completions(server: Server) -> None:
    """The same place by OpenAI's field."""
    body = {"prompt": "a = ", "suffix": "\nprint(a)", "max_tokens": 4, "temperature": 0}
    answer = http.post(server.url + "/v1/completions", json=body).json()
    assert answer["usage"]["completion_tokens"] == 4
