"""What works with adapters: bases of any encoding, guesses, forms of answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from tests.support import http
from tests.support.metrics import scrape
from tests.support.models import ggufs
from tests.support.models.adapters import lora_gguf, write_lora
from tests.support.models.heads import WRITERS
from tests.support.models.reference import ReferenceLlama, log_softmax
from tests.support.programs.processes import Server, serving
from worker.model.config import load_config

PROMPT = [1, *range(5, 45)]


def adapted(model: Path, adapter: Path, scale: float) -> ReferenceLlama:
    """The weights that a model has with an adapter of rank 4 and alpha 8."""
    reference = ReferenceLlama(model)
    parts = {each.name: each.data for each in GGUFReader(adapter).tensors}
    for name in {name.rpartition(".")[0] for name in parts}:
        product = parts[f"{name}.lora_b"] @ parts[f"{name}.lora_a"]
        reference.weights[name] = reference.weights[name] + scale * 8 / 4 * product
    return reference


def scores(server: Server, prompt: list[int], **more: Any) -> np.ndarray:
    """Of each token of the prompt but the first, with what went before it."""
    body = {"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 0, **more}
    answer = server.post(body)
    assert answer.is_success, answer.text
    return np.array(answer.json()["choices"][0]["logprobs"]["token_logprobs"][1:])


@pytest.mark.parametrize("encoding", ["F32", "F16", "Q8_0", "Q4_K"])
def test_bases(encoding: str, tmp_path: Path) -> None:
    """The scores are those of numpy with the adapter in the weights, as far as llama.cpp rounds."""
    model = ggufs.write_llama(tmp_path / "m.gguf", encoding=encoding, context=512)
    adapter = write_lora(tmp_path / "a.gguf", model, 1)
    rows, scales = np.arange(len(PROMPT) - 1), {"m": 0.0, "a": 2.0}
    expected = {
        name: log_softmax(adapted(model, adapter, scale).forward(PROMPT).logits)[rows, PROMPT[1:]]
        for name, scale in scales.items()
    }
    options = ("--model", model, "--ctx-size", "512", "--lora", f"{adapter}=a:2")
    with serving(*options) as server:
        for name, other in (("a", "m"), ("m", "a")):
            found = scores(server, PROMPT, model=name)
            own, others = (np.abs(found - expected[each]).mean() for each in (name, other))
            assert own < others / 10


@pytest.mark.parametrize("guesses", ["auto", "model", "qwen35", "glm4moe"])
def test_guesses(guesses: str, tiny: Path, tmp_path: Path) -> None:
    """Who guesses knows no adapters: what is said is the same."""
    model, words = tiny, ["--draft", guesses]
    if guesses == "model":
        words = ["--draft-model", tiny]
    elif guesses in WRITERS:
        model, words = WRITERS[guesses](tmp_path / "m.gguf"), ["--draft", "mtp"]
    gguf, heads = lora_gguf(model), f"blk.{load_config(model).layers - 1}."
    if guesses in WRITERS:
        gguf.tensors = [each for each in gguf.tensors if not str(each.name).startswith(heads)]
    adapter = gguf.write(tmp_path / "a.gguf")
    options = ["--model", model, "--ctx-size", "2048", "--lora", f"{adapter}=a:0.02"]
    body = {
        "model": "a", "prompt": PROMPT * 3, "max_tokens": 60, "temperature": 0, "ignore_eos": True,
    }  # fmt: skip
    said: list[str] = []
    for more in (["--draft", "none"], words):
        with serving(*options, *more) as server:
            said += [server.post(body).json()["choices"][0]["text"] for _ in range(3)]
            counters = scrape(server.url)
    assert len(set(said)) == 1
    if guesses not in WRITERS:  # of whose noise some is never guessed
        assert counters["worker_draft_tokens_total"] > 0


def test_forms(tiny: Path, tmp_path: Path) -> None:
    """An answer with an adapter has the form that it must have, and is its own."""
    adapter = write_lora(tmp_path / "a.gguf", tiny, 1)
    schema = {
        "type": "object", "properties": {"name": {"type": "string", "maxLength": 12}},
        "required": ["name"], "additionalProperties": False,
    }  # fmt: skip
    body = {"prompt": PROMPT, "max_tokens": 80, "temperature": 0, "json_schema": schema}
    options = ("--model", tiny, "--ctx-size", "1024", "--lora", f"{adapter}=a")
    with serving(*options) as server:
        texts = [
            http.post(server.url + "/v1/completions", json={**body, "model": name}).json()
            for name in ("a", "tiny")
        ]
    names = [json.loads(each["choices"][0]["text"])["name"] for each in texts]
    assert names[0] != names[1]
