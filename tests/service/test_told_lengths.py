"""The length of a request, as every route that states one tells it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import http
from tests.support.models import architectures, ggufs
from tests.support.models.embedders import Embedder, write_qwen3
from tests.support.models.projectors import write_llava
from tests.support.programs.processes import Server, serving

TRAINED = 2048


def llama(folder: Path) -> Path:
    return ggufs.write_llama(folder / "m.gguf", context=TRAINED)


def bert(folder: Path) -> Path:
    path = folder / "m.gguf"
    Embedder("bert").write(path)
    return path


def of(write: Callable[[Path], Path]) -> Callable[[Path], Path]:
    return lambda folder: write(folder / "m.gguf")


def show(server: Server) -> dict[str, Any]:
    return server.post({"model": "m"}, "/api/show").json()


def told(server: Server, *, writes: bool, wakes: bool = True) -> dict[str, int]:
    """Each place that states what a request may have. wakes: those that wake the model, too"""

    def get(path: str) -> Any:
        return http.get(server.url + path).json()

    info = show(server)["model_info"]
    model = get("/v1/models")["data"][0]
    found: dict[str, int] = {
        "show": info[f"{info['general.architecture']}.context_length"],
        "num_ctx": int(show(server)["parameters"].split()[-1]),
        "ps": get("/api/ps")["models"][0]["context_length"],
        "models": model["max_model_len"],
        "meta": model["meta"]["n_ctx"],
        "model": get(f"/v1/models/{model['id']}")["max_model_len"],
        "info": get("/info")["context_length"],
        "health": get("/health")["context_length"],
        "props": get("/props")["default_generation_settings"]["n_ctx"],
        **{f"slot {slot['id']}": slot["n_ctx"] for slot in get("/slots")},
    }
    if wakes:
        found["tokenizer"] = get("/tokenizer_info")["model_max_length"]
        found["tokenize"] = server.post({"content": "a"}, "/tokenize").json()["max_model_len"]
    if not writes:
        assert model["max_embedding_len"] == model["max_model_len"]
    return found


def trained(server: Server) -> set[int]:
    """Each place that states what the model was trained on."""
    info = show(server)["model_info"]
    meta = http.get(server.url + "/v1/models").json()["data"][0]["meta"]
    return {
        info[f"{info['general.architecture']}.n_ctx_train"],
        meta["n_ctx_train"],
        http.get(server.url + "/info").json()["n_ctx_train"],
    }


def check_text(server: Server, length: int) -> None:
    """A prompt and one token of an answer are as long as told, and no longer."""
    for count, status in ((length - 1, 200), (length, 400)):
        body = {"prompt": [7] * count, "max_tokens": 1, "ignore_eos": True}
        answer = server.post(body)
        assert answer.status_code == status, answer.text
        if status == 400:
            assert answer.json()["error"]["n_ctx"] == length


def check_vectors(server: Server, length: int) -> None:
    """A text is as long as told, and no longer."""
    for count, status in ((length, 200), (length + 1, 400)):
        answer = server.post({"input": [[7] * count]}, "/v1/embeddings")
        assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    ("write", "words", "length"),
    [
        (llama, "-c 512", 512),
        (llama, "-c 700 -np 1", 768),
        (llama, "-c 4096", TRAINED),
        (llama, "-c 1024 -np 4 --cache-ram 0", 1024),
        (llama, "-c 2048 -np 16 --pooling mean", 2048),
        (llama, "-c 512 --draft-model {model}", 512),
        (llama, "-c 4096 --rope-scale 2", 4096),
        (llama, "-c 1024 --rope-scale 2", 1024),
        (llama, "-c 4096 --rope-scaling yarn --rope-scale 1.5", 3072),
        (llama, "-c 3000 --rope-freq-base 100000", 3000),
        (llama, "-c 4096 --rope-scaling linear --rope-scale 4 --yarn-orig-ctx 512", TRAINED),
        (llama, "-c 1024 --override-kv llama.context_length=int:600", 600),
        (of(architectures.write_gemma3), "-c 1024 -np 2", 1024),
        (of(architectures.write_mamba), "-c 512 -np 2", 512),
        (of(architectures.write_lfm2), "-c 512 -np 2", 512),
    ],
)  # fmt: skip
def test_text(tmp_path: Path, write: Callable[[Path], Path], words: str, length: int) -> None:
    """All routes tell what a request may have, in each layout of the cells, also asleep and
    afterwards; the trained length is another field."""
    model = write(tmp_path)
    options = [word.format(model=model) for word in words.split()]
    with serving("--model", model, *options) as server:
        assert set(told(server, writes=True).values()) == {length}
        assert trained(server) == {TRAINED}
        check_text(server, length)  # one sequence has all cells now
        assert set(told(server, writes=True).values()) == {length}
        assert server.post({}, "/sleep").status_code == 200
        assert set(told(server, writes=True, wakes=False).values()) == {length}
        assert trained(server) == {TRAINED}
        assert server.health()["is_sleeping"]
        check_text(server, length)
        assert set(told(server, writes=True).values()) == {length}


@pytest.mark.mtmd
def test_with_pictures(tmp_path: Path) -> None:
    """A model that sees tells the same."""
    model, _ = write_llava(tmp_path)
    with serving("--model", model, "-c", "1024", "-np", "2") as server:
        assert set(told(server, writes=True).values()) == {1024}
        check_text(server, 1024)


@pytest.mark.parametrize("words", ["", "-c 16"])
def test_vectors(tmp_path: Path, words: str) -> None:
    """A model that only makes vectors tells how long a text may be."""
    with serving("--model", bert(tmp_path), *words.split()) as server:
        (length,) = set(told(server, writes=False).values())
        assert length <= min(trained(server))
        check_vectors(server, length)
        assert server.post({}, "/sleep").status_code == 200
        assert set(told(server, writes=False, wakes=False).values()) == {length}
        check_vectors(server, length)


def test_vectors_beside_text(tmp_path: Path) -> None:
    """A model that does both tells both lengths."""
    path = ggufs.write_llama(tmp_path / "m.gguf", context=16_384)
    with serving("--model", path, "--pooling", "mean", "-c", "16384", "-np", "1") as server:
        model = http.get(server.url + "/v1/models").json()["data"][0]
        assert model["max_model_len"] == 16_384
        assert model["max_embedding_len"] == 8192
        check_vectors(server, 8192)


def test_reranking(tmp_path: Path) -> None:
    """A reranker tells how long a pair may be."""
    path = write_qwen3(tmp_path / "m.gguf", reranks=True)
    with serving("--model", path, "-c", "512") as server:
        assert len(set(told(server, writes=False).values())) == 1
