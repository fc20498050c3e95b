"""A worker whose model is on the GPU."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from checks.gpu.conftest import Accelerator
from tests.support import http
from tests.support.metrics import scrape
from tests.support.models.projectors import png, write_llava
from tests.support.programs.offloaded import LAYERS, PROMPT
from tests.support.programs.processes import Server, serving
from worker.demo import MODEL_PATH

STREAMS, TOKENS = 64, 32
# Log-probabilities of one token, of kernels that round differently.
ROUNDING = 0.1


@pytest.fixture(scope="module")
def server(gpu: Accelerator) -> Generator[Server]:
    """With a slot for each stream, and all its layers on the device."""
    with serving(*gpu.words, "-c", str(STREAMS * 256), "-np", str(STREAMS)) as running:
        yield running


def said(server: Server, prompt: Any = PROMPT, **fields: Any) -> dict[str, Any]:
    """A greedy answer."""
    body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    answer = server.post(body | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def text(server: Server, **fields: Any) -> str:
    return str(said(server, **fields)["choices"][0]["text"])


def test_all_layers_are_there(gpu: Accelerator, server: Server) -> None:
    """The log, /health and /info say so."""
    ready = server.logged("ready")
    assert ready["layers"] == {gpu.name: LAYERS}
    assert ready["kv"] == {gpu.name: LAYERS - 1}
    assert server.health()["resident"] is True
    info = http.get(server.url + "/info").json()
    assert info["vram_bytes"] / 1e6 == pytest.approx(ready["buffers_mb"][gpu.name], abs=0.51)


@pytest.mark.parametrize("streams", [8, STREAMS])
def test_streams_share_steps(server: Server, streams: int) -> None:
    """Each gets all its tokens, in far fewer steps than tokens; alone the text is what it was."""
    before, alone = scrape(server.url)["worker_steps_total"], text(server)
    with ThreadPoolExecutor(streams) as pool:
        prompts = [[1, 300 + number, 301, 302 + number] for number in range(streams)]
        answers = list(pool.map(lambda prompt: said(server, prompt), prompts))
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [TOKENS] * streams
    steps = scrape(server.url)["worker_steps_total"] - before
    assert steps < (1 + streams / 2) * TOKENS
    assert text(server) == alone


def test_sleep_gives_its_memory_back(gpu: Accelerator) -> None:
    """And a request wakes the model with the same text."""
    with serving(*gpu.words, "-c", "1024") as server:
        first, held = text(server), http.get(server.url + "/info").json()["vram_bytes"]
        assert held > 0
        assert server.post({}, "/sleep").json() == {"is_sleeping": True}
        assert scrape(server.url)["worker_vram_bytes"] == 0
        assert text(server) == first
        assert http.get(server.url + "/info").json()["vram_bytes"] == held


def test_a_draft_model_is_there_too(gpu: Accelerator) -> None:
    """Its memory is the device's, and its tokens are accepted."""
    size = ("-c", "1024")
    with serving(*gpu.words, *size, "--draft", "none") as server:
        alone = http.get(server.url + "/info").json()["vram_bytes"]
    words = ("--draft", "model", "--draft-model", str(MODEL_PATH))
    with serving(*gpu.words, *size, *words) as server:
        assert http.get(server.url + "/info").json()["vram_bytes"] > 1.5 * alone
        timings = said(server)["timings"]
        assert 0 < timings["draft_n_accepted"] <= timings["draft_n"]


@pytest.mark.mtmd
def test_pictures(gpu: Accelerator, tmp_path: Path) -> None:
    """The first token and its log-probability are those of the CPU, up to rounding."""
    model, projector = write_llava(tmp_path)
    data = b64encode(png()).decode()
    shown = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    asked = {"role": "user", "content": [shown, {"type": "text", "text": "what is it?"}]}
    body = {"messages": [asked], "max_tokens": 1, "temperature": 0, "logprobs": True}
    found: list[dict[str, Any]] = []
    for words in (["-ngl", "0"], gpu.words):
        with serving(model, "--mmproj", projector, "-c", "1024", *words) as server:
            answer = server.post(body, "/v1/chat/completions")
            assert answer.status_code == 200, answer.text
            found += answer.json()["choices"][0]["logprobs"]["content"]
    assert found[0]["token"] == found[1]["token"]
    assert found[1]["logprob"] == pytest.approx(found[0]["logprob"], abs=ROUNDING)
