"""Vectors of tiny models are those that numpy makes, whatever shares their steps."""

from __future__ import annotations

import base64
import json
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import ollama
import openai
import pytest

from tests.support import http
from tests.support.models import ggufs
from tests.support.models.architectures import WRITERS
from tests.support.models.embedders import ARCHITECTURES, CONTEXT, Embedder
from tests.support.models.reference import ReferenceLlama
from tests.support.programs.processes import Server, serving

LENGTHS = (1, 2, 7, 30, CONTEXT, 50)
TEXT = "the rain in spain stays mainly in the plain."


def tokens_of(lengths: tuple[int, ...] = LENGTHS) -> list[list[int]]:
    rng = np.random.default_rng(3)
    return [rng.integers(5, 320, length).tolist() for length in lengths]


def vectors(server: Server, given: Any, **fields: Any) -> list[np.ndarray]:
    answer = server.post({"input": given, **fields}, "/v1/embeddings")
    assert answer.status_code == 200, answer.text
    return [np.array(entry["embedding"]) for entry in answer.json()["data"]]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Server, Embedder]]:
    """A BERT of three layers that makes means."""
    model = Embedder("bert")
    path = model.write(tmp_path_factory.mktemp("bert") / "bert.gguf")
    with serving("--model", path, "-t", "1") as server:
        yield server, model


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A Llama that writes and makes vectors; its name says that they can be cut."""
    folder = tmp_path_factory.mktemp("both")
    path = ggufs.write_llama(folder / "llama.gguf", context=2048, name="Nomic-Embed-Text v1.5")
    with serving("--model", path, "-t", "1", "--ctx-size", "2048", "--pooling", "mean") as server:
        yield server


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_encoders(architecture: str, tmp_path: Path) -> None:
    """Each kind as numpy computes it; alone as together."""
    model, given = Embedder(architecture), tokens_of()
    with serving("--model", model.write(tmp_path / "model.gguf"), "-t", "1") as server:
        together = vectors(server, given)
        alone = [vectors(server, tokens)[0] for tokens in given]
    for tokens, one, another in zip(given, together, alone, strict=True):
        assert one @ model.vector(tokens) > 1 - 1e-5
        assert np.abs(one - another).max() < 1e-3  # flash attention rounds keys and values


@pytest.mark.parametrize("pooling", ["cls", "last"])
def test_pooling(pooling: str, tmp_path: Path) -> None:
    """The option counts before the file."""
    model, given = Embedder("nomic-bert"), tokens_of((9, 20))
    path = model.write(tmp_path / "model.gguf")
    with serving("--model", path, "-t", "1", "--pooling", pooling) as server:
        for tokens, vector in zip(given, vectors(server, given), strict=True):
            assert vector @ model.vector(tokens, pooling) > 1 - 1e-5


def test_no_pooling(tmp_path: Path) -> None:
    """A vector for each token under llama-server's path; OpenAI's has no room for them."""
    model, (given,) = Embedder("bert"), tokens_of((9,))
    path = model.write(tmp_path / "model.gguf")
    with serving("--model", path, "-t", "1", "--pooling", "none") as server:
        (entry,) = server.post({"content": given}, "/embedding").json()
        np.testing.assert_allclose(entry["embedding"], model.rows(given), atol=1e-2)
        assert server.post({"input": given}, "/v1/embeddings").status_code == 400


def test_a_decoder(both: Server, tmp_path: Path) -> None:
    """The mean of its last hidden states, also of a text that is read in several steps."""
    path = ggufs.write_llama(tmp_path / "same.gguf", context=2048)
    given = tokens_of((3, 40, 1200))
    for tokens, vector in zip(given, vectors(both, given), strict=True):
        rows = ReferenceLlama(path).forward(tokens).blocks[1]
        rows = rows / np.sqrt((rows**2).mean(-1, keepdims=True) + 1e-5)
        mean = rows.mean(0)
        assert vector @ mean / np.linalg.norm(mean) > 1 - 1e-5


@pytest.mark.parametrize("kind", ["qwen3", "gemma3", "mamba", "lfm2-window", "granitehybrid"])
def test_kinds_of_decoders(kind: str, tmp_path: Path) -> None:
    """Windows and recurrent states: alone as together, in parts as a whole."""
    path, given = WRITERS[kind](tmp_path / "model.gguf"), tokens_of((1, 12, 12, 300))
    made: list[list[np.ndarray]] = []
    for rows in ("64", "512"):
        options = ("-t", "1", "--ctx-size", "1024", "--pooling", "mean", "-b", rows)
        with serving("--model", path, *options) as server:
            made += [vectors(server, given), [vectors(server, tokens)[0] for tokens in given]]
    for others in made[1:]:
        np.testing.assert_allclose(others, made[0], rtol=0, atol=1e-4)


def test_a_decoder_writes_too(both: Server) -> None:
    """What it writes is what it writes alone, and vectors are what they are alone."""
    body = {"prompt": "the rain", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
    alone, vector = both.post(body).json()["choices"], vectors(both, TEXT)[0]
    with ThreadPoolExecutor(8) as pool:
        texts = [pool.submit(both.post, body) for _ in range(4)]
        many = [pool.submit(vectors, both, [TEXT] * 40) for _ in range(4)]
        assert all(each.result().json()["choices"] == alone for each in texts)
        for each in many:
            assert np.abs(np.array(each.result()) - vector).max() < 1e-4


def test_shapes_of_the_answer(bert: tuple[Server, Embedder]) -> None:
    """OpenAI's client in both encodings, Ollama's and llama-server's paths: the same numbers."""
    server, model = bert
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="x")
    plain = client.embeddings.create(model="x", input=TEXT, encoding_format="float")
    coded = client.embeddings.create(model="x", input=TEXT)
    tokens = server.post({"prompt": TEXT}, "/tokenize").json()["tokens"]
    assert np.array(plain.data[0].embedding) @ model.vector(tokens) > 1 - 1e-5
    assert plain.usage.prompt_tokens == plain.usage.total_tokens == len(tokens)
    raw = server.post({"input": TEXT, "encoding_format": "base64"}, "/v1/embeddings").json()
    little = np.frombuffer(base64.b64decode(raw["data"][0]["embedding"]), "<f4")
    np.testing.assert_array_equal(little, np.array(coded.data[0].embedding, np.float32))
    theirs = ollama.Client(server.url)
    np.testing.assert_allclose(theirs.embed("x", [TEXT, "a"]).embeddings[0], little, atol=1e-6)
    bare = np.array(theirs.embeddings("x", TEXT).embedding)
    np.testing.assert_allclose(bare / np.linalg.norm(bare), little, rtol=1e-4, atol=1e-6)
    (entry,) = server.post({"content": TEXT}, "/embedding").json()
    np.testing.assert_allclose(entry["embedding"], [little])
    rows = server.post({"input": TEXT}, "/pooling").json()["data"][0]["data"]
    np.testing.assert_allclose(rows, model.rows(tokens), atol=1e-2)


def length_of(vector: np.ndarray, norm: int) -> float:
    if norm == 0:
        return float(np.abs(vector).max()) / 32_760
    return float((np.abs(vector) ** norm).sum() ** (1 / norm))


@pytest.mark.parametrize("norm", [0, 1, 2, 3])
def test_norms(bert: tuple[Server, Embedder], norm: int) -> None:
    """llama-server's numbers; below 0 nothing is done."""
    (vector,), (bare,) = (vectors(bert[0], TEXT, embd_normalize=n) for n in (norm, -1))
    assert length_of(vector, norm) == pytest.approx(1, rel=1e-4)
    np.testing.assert_allclose(vector * length_of(bare, norm), bare, rtol=1e-4, atol=1e-5)
    assert length_of(bare, 2) > 1.5


def test_dimensions(bert: tuple[Server, Embedder], both: Server) -> None:
    """A beginning of length 1, where the model was trained for it; else it is refused."""
    (whole,), (short,) = vectors(both, TEXT), vectors(both, TEXT, dimensions=16)
    np.testing.assert_allclose(short, whole[:16] / np.linalg.norm(whole[:16]), rtol=1e-5)
    for server, count in ((bert[0], 16), (both, 0), (both, 65)):
        answer = server.post({"input": TEXT, "dimensions": count}, "/v1/embeddings")
        assert answer.json()["error"]["param"] == "dimensions"


def test_long_texts(bert: tuple[Server, Embedder]) -> None:
    """Refused with both numbers, or cut where that is asked for, and ended as a text ends."""
    server, model = bert
    answer = server.post({"input": TEXT * 9}, "/v1/embeddings")
    assert answer.status_code == 400
    assert answer.json()["error"]["n_ctx"] == CONTEXT
    assert answer.json()["error"]["n_prompt_tokens"] > CONTEXT
    tokens = server.post({"prompt": TEXT * 9}, "/tokenize").json()["tokens"]
    for most in (CONTEXT, 20):
        (vector,) = vectors(server, TEXT * 9, truncate_prompt_tokens=most)
        assert vector @ model.vector([*tokens[: most - 1], tokens[-1]]) > 1 - 1e-5
    theirs = ollama.Client(server.url)
    assert len(theirs.embed("x", TEXT * 9).embeddings) == 1
    with pytest.raises(ollama.ResponseError):
        theirs.embed("x", TEXT * 9, truncate=False)


HOSTILE: list[Any] = [
    None, [], {}, 7, [[]], ["a", []], [1, {}], [[{}]], {"content": "a"},
    {"content": [{"type": "image_url"}]}, [10**9], [-1], [[1], [320]],
    ["a"] * 100_000, "a " * 4_000_000, [1.5], [True], ["a", None],
]  # fmt: skip


@pytest.mark.parametrize("given", HOSTILE, ids=lambda given: json.dumps(given)[:24])
def test_hostile(bert: tuple[Server, Embedder], given: Any) -> None:
    """One sentence; the next answer is what it was."""
    before = vectors(bert[0], TEXT)[0]
    for path in ("/v1/embeddings", "/embedding", "/pooling"):
        answer = bert[0].post({"input": given}, path)
        assert answer.status_code == 400, answer.text[:200]
        assert answer.json()["error"]["message"].count("\n") == 0
    np.testing.assert_array_equal(vectors(bert[0], TEXT)[0], before)


def test_forms_of_llama_server(bert: tuple[Server, Embedder]) -> None:
    """Texts among the ids of a list in the list are one text; objects hold a text."""
    words = bert[0].post({"prompt": "the rain"}, "/tokenize").json()["tokens"]
    parts = {"content": [{"type": "text", "text": "the "}, {"type": "text", "text": "rain"}]}
    whole = vectors(bert[0], ["the rain", {"prompt_string": "the rain"}, parts])
    for other in whole[1:]:
        np.testing.assert_allclose(other, whole[0], atol=1e-4)
    mixed = vectors(bert[0], [[*words[:-1], "rain", words[-1]]])[0]
    inner = bert[0].post({"content": "rain"}, "/tokenize").json()["tokens"]
    ids = vectors(bert[0], [*words[:-1], *inner, words[-1]])[0]
    np.testing.assert_allclose(mixed, ids, atol=1e-4)


@pytest.mark.parametrize("given", ["", "a\0b", "\ud800", "\ufeff", "a" * 90, "\u200b\n\t"])
def test_odd_texts(bert: tuple[Server, Embedder], given: str) -> None:
    """They are texts like others: each has a vector of length 1."""
    answer = http.post(bert[0].url + "/v1/embeddings", content=json.dumps({"input": given}))
    (entry,) = answer.json()["data"]
    assert np.linalg.norm(entry["embedding"]) == pytest.approx(1, rel=1e-4)


WRITING = {
    "/v1/completions": {"prompt": "a"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/responses": {"input": "a"},
    "/v1/messages": {"max_tokens": 3, "messages": [{"role": "user", "content": "a"}]},
    "/api/chat": {"messages": [{"role": "user", "content": "a"}]},
    "/api/generate": {"prompt": "a"},
    "/infill": {"input_prefix": "a"},
    "/execute": {"prompt": "a", "max_tokens": 3},
}


@pytest.mark.parametrize("path", WRITING)
def test_an_embedding_model_writes_nothing(bert: tuple[Server, Embedder], path: str) -> None:
    """It says what it is, in the shape of the path's errors."""
    answer = bert[0].post(WRITING[path], path)
    assert answer.status_code == 400
    assert "is a bert model that embeds texts" in answer.text


def test_it_says_what_it_is(bert: tuple[Server, Embedder], server: Server) -> None:
    """Both kinds, also to who asks the wrong one."""
    assert bert[0].post({"model": "x"}, "/api/show").json()["capabilities"] == ["embedding"]
    answer = server.post({"input": "a"}, "/v1/embeddings")
    assert answer.json()["error"]["code"] == "no_vectors"
    assert "that writes text" in answer.text
