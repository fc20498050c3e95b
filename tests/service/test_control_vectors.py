"""Control vectors: the text is that of a model which adds the same numbers by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.models import ggufs
from tests.support.models.adapters import control_gguf
from tests.support.models.spoiled import extra
from tests.support.programs.processes import ended, serving

LAYERS = (1, 2)
BODY = {
    "prompt": "Once upon a time there was a king who had three sons and one of them said so" * 4,
    "max_tokens": 24, "temperature": 0, "seed": 7, "ignore_eos": True,
}  # fmt: skip
OPTIONS = ("--ctx-size", "2048")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a control vector, one whose numbers are half of it, and for each choice of layers a
    model that has it within."""
    folder = tmp_path_factory.mktemp("control")
    options: dict[str, Any] = {"layers": 3, "context": 2048}
    ggufs.write_llama(folder / "m.gguf", **options)
    vector = control_gguf(LAYERS, 64)
    vector.write(folder / "v.gguf")
    for layers in ((1, 2), (2,)):
        gguf = ggufs.llama_gguf(**options)
        for layer, tensor in zip(LAYERS, vector.tensors, strict=True):
            data = tensor.data if layer in layers else bytes(256)
            extra(f"blk.{layer}.ffn_down.bias", (64,), 0, data)(gguf)
        gguf.write(folder / f"within-{'-'.join(map(str, layers))}.gguf")
    return folder


def said(folder: Path, model: str, *words: str | Path) -> str:
    with serving("--model", folder / model, *OPTIONS, *words) as server:
        return server.post(BODY).json()["choices"][0]["text"]


def test_what_it_adds(folder: Path) -> None:
    """Behind all layers or some, whole or as a sum."""
    vector, bare = folder / "v.gguf", said(folder, "m.gguf")
    whole, part = said(folder, "within-1-2.gguf"), said(folder, "within-2.gguf")
    assert len({bare, whole, part}) == 3
    assert said(folder, "m.gguf", "--control-vector", vector) == whole
    halves = f"{vector}:0.5,{vector}:0.5"
    assert said(folder, "m.gguf", "--control-vector-scaled", halves) == whole
    only = ("--control-vector", vector, "--control-vector-layer-range")
    assert said(folder, "m.gguf", *only, "2", "3") == part
    assert said(folder, "m.gguf", *only, "3", "3", "-np", "2", "--sandbox") == bare


def test_it_is_there_after_a_sleep(folder: Path) -> None:
    model = ("--model", folder / "m.gguf", *OPTIONS)
    with serving(*model, "--control-vector", folder / "v.gguf") as server:
        first = server.post(BODY).json()["choices"][0]["text"]
        assert server.post({}, "/sleep").status_code == 200
        assert server.post(BODY).json()["choices"][0]["text"] == first


def test_what_is_known_on_disk(folder: Path, tmp_path: Path) -> None:
    """It is known to workers with the same control vector only."""
    runs: list[tuple[str, float]] = []
    for scale in ("0", "1", "0", "1"):
        vector = f"{folder / 'v.gguf'}:{scale}"
        words = ("--control-vector-scaled", vector, "--cache-dir", tmp_path)
        with serving("--model", folder / "m.gguf", *OPTIONS, *words) as server:
            answer = server.post(BODY).json()
            runs.append(
                (
                    answer["choices"][0]["text"],
                    answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0,
                )
            )
    assert [is_known for _, is_known in runs] == [False, False, True, True]
    expected = [said(folder, model) for model in ("m.gguf", "within-1-2.gguf")]
    assert [text for text, _ in runs] == expected * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--control-vector m.gguf", "NOT_CONTROL_VECTOR"),
        ("--control-vector none.gguf", "NOT_FOUND"),
        ("--control-vector v.gguf --model within.gguf", "ADAPTER_MISMATCH"),
        ("--control-vector v.gguf --control-vector-layer-range 2 1", "in order"),
        ("--control-vector-layer-range 1 2", "there are none"),
    ],
)
def test_refused(folder: Path, words: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence at the start."""
    ggufs.write_llama(folder / "within.gguf", embedding=128)
    monkeypatch.chdir(folder)
    done = ended("serve", "--port", "0", "--model", "m.gguf", *words.split())
    assert done.returncode != 0
    assert said in done.stderr.splitlines()[-1]
