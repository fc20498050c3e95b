"""What a worker has on the GPU beside its model, and that a sleeping one has nothing there."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from checks.gpu.asked import said, text
from checks.gpu.conftest import Accelerator
from tests.support import http
from tests.support.metrics import scrape
from tests.support.models import drafters
from tests.support.models.projectors import png, write_llava
from tests.support.programs.processes import serving
from worker.demo import MODEL_PATH

# Log-probabilities of one token, of kernels that round differently.
ROUNDING = 0.1


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


def test_an_assistant_looks_at_cells_there(gpu: Accelerator, tmp_path: Path) -> None:
    """Its tokens are accepted as often as on the CPU, up to rounding."""
    target = drafters.write_gemma4(tmp_path / "target.gguf", noise=0.4)
    drafter = drafters.write_assistant(tmp_path / "assistant.gguf")
    shares: list[float] = []
    for words in (["-ngl", "0"], gpu.words):
        more = ("-c", "1024", "--draft", "model", "--draft-max", "2", "-md", drafter)
        with serving(target, *more, *words) as server:
            timings = [said(server, [5 + i, 6 + i, 7 + i])["timings"] for i in range(4)]
            drafted = sum(each["draft_n"] for each in timings)
            shares.append(sum(each["draft_n_accepted"] for each in timings) / drafted)
    assert shares[0] > 0.5
    assert shares[1] > 0.7 * shares[0]


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
