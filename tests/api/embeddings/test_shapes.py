"""Vectors and ranks in the shapes that clients of several APIs read, errors among them."""

from __future__ import annotations

import base64
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cases import for_each
from tests.support.models.embedders import YES_NO, Embedder, write_qwen3
from tests.support.programs.processes import Server, serving
from worker.api.embeddings.encoding import encode
from worker.api.intake.embeddings import KINDS

TEXTS = ["the rain in spain", "is it wet?", "the sun"]
QUESTION = "is it wet?"


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """It makes means."""
    path = Embedder("bert").write(tmp_path_factory.mktemp("shapes") / "bert.gguf")
    with serving("--model", path, "-t", "1") as server:
        yield server


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """It reads question and document at once."""
    model = Embedder("bert", pooling=4, classifier=1)
    path = model.write(tmp_path_factory.mktemp("shapes") / "crossed.gguf")
    with serving("--model", path, "-t", "1") as server:
        yield server


def told(server: Server, path: str, **body: Any) -> Any:
    answer = server.post(body, path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def plain(server: Server) -> list[list[float]]:
    return [each["embedding"] for each in told(server, "/v1/embeddings", input=TEXTS)["data"]]


def test_cohere_vectors(bert: Server) -> None:
    """v1's list of floats, and each kind of elements by its name; a base64 is of the floats."""
    vectors = plain(bert)
    first = told(bert, "/v1/embed", texts=TEXTS, model="m", input_type="search_query")
    assert set(first) == {"response_type", "id", "texts", "embeddings", "meta"}
    assert (first["response_type"], first["texts"]) == ("embeddings_floats", TEXTS)
    np.testing.assert_allclose(first["embeddings"], vectors, atol=1e-5)
    count = told(bert, "/v1/embeddings", input=TEXTS)["usage"]["prompt_tokens"]
    assert first["meta"]["billed_units"] == {"input_tokens": count}
    assert first["meta"]["api_version"] == {"version": "1"}
    kinds = [*KINDS, "base64"]
    for path in ("/v1/embed", "/v2/embed"):
        made = told(bert, path, texts=TEXTS, embedding_types=kinds)
        assert made["response_type"] == "embeddings_by_type"
        assert list(made["embeddings"]) == kinds
        assert all(len(made["embeddings"][kind]) == len(TEXTS) for kind in kinds)
        coded = np.frombuffer(base64.b64decode(made["embeddings"]["base64"][0]), "<f4")
        np.testing.assert_allclose(coded, vectors[0], atol=1e-5)
    usual = told(bert, "/v2/embed", inputs=[{"content": [{"type": "text", "text": TEXTS[0]}]}])
    np.testing.assert_allclose(usual["embeddings"]["float"], vectors[:1], atol=1e-5)
    assert usual["meta"]["api_version"] == {"version": "2"}


@for_each(
    "body, place",
    [
        ({}, "texts"), ({"texts": []}, "texts"), ({"texts": ["a"], "images": ["data:"]}, "images"),
        ({"texts": ["a"], "embedding_types": ["float", "f16"]}, "embedding_types[1]"),
        ({"inputs": [{"content": [{"type": "image_url"}]}]}, "inputs[0]"),
        ({"texts": ["a"], "output_dimension": 3}, "output_dimension"),
        ({"texts": ["a"], "max_tokens": 0}, "max_tokens"),
    ],
)  # fmt: skip
def test_cohere_refused(bert: Server, body: dict[str, Any], place: str) -> None:
    """By the place, with `message` where its clients look for it."""
    answer = bert.post(body, "/v2/embed")
    assert answer.status_code == 400
    error = answer.json()
    assert error["error"]["param"] == place
    assert error["message"] == error["error"]["message"]


def test_kinds_of_elements() -> None:
    """Integers keep the angle, bits the signs; a byte has eight of those."""
    vector = np.array([0.5, -0.25, 0.1, -1.0, 0.0, 0.75, 0.3, -0.1, 0.2], np.float32)
    scaled = [64, -32, 13, -127, 0, 95, 38, -13, 25]
    assert encode(vector, "int8") == scaled
    assert encode(vector, "uint8") == [each + 128 for each in scaled]
    bits = [0b10100110, 0b10000000]
    assert encode(vector, "ubinary") == bits
    assert encode(vector, "binary") == [each - 128 for each in bits]
    assert base64.b64decode(str(encode(vector, "ubinary", as_text=True))) == bytes(bits)
    assert encode(np.zeros(3, np.float32), "int8") == [0, 0, 0]


@for_each("name", ["output_dtype", "embedding_type"])
def test_voyage_and_jina_vectors(bert: Server, name: str) -> None:
    """Kinds of elements under the name of each, as numbers and in base64."""
    vector = np.array(plain(bert)[0], np.float32)
    for kind in KINDS:
        (one, *_) = told(bert, "/v1/embeddings", input=TEXTS, **{name: kind})["data"]
        if kind == "float":
            np.testing.assert_allclose(one["embedding"], vector, atol=1e-5)
        else:
            assert one["embedding"] == encode(vector, kind)
        coded = {"encoding_format": "base64", name: kind}
        (one, *_) = told(bert, "/v1/embeddings", input=TEXTS, **coded)["data"]
        assert one["embedding"] == encode(vector, kind, as_text=True) or kind == "float"
    error = bert.post({"input": "a", name: "f16"}, "/v1/embeddings").json()
    assert error["error"]["param"] == name
    assert error["detail"] == error["error"]["message"]
    jina = told(bert, "/v1/embeddings", input=[{"text": TEXTS[0]}], embedding_type="base64")
    floats = np.frombuffer(base64.b64decode(jina["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(floats, vector, atol=1e-5)


@for_each("path", ["/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking"])
def test_ranks_for_all(crossed: Server, path: str) -> None:
    """`results` with texts as objects and `data` with texts: the same order and numbers."""
    body: dict[str, Any] = {"query": QUESTION, "documents": TEXTS, "return_documents": True}
    for most, name in ((3, "top_n"), (2, "top_k"), (9, "top_k")):
        found = told(crossed, path, **body, **{name: most})
        assert set(found) == {"id", "object", "model", "results", "data", "usage", "meta"}
        assert len(found["results"]) == min(most, 3)
        unwrapped = [{**each, "document": each["document"]["text"]} for each in found["results"]]
        assert found["data"] == unwrapped
        assert [each["document"] for each in found["data"]] == [
            TEXTS[each["index"]] for each in found["data"]
        ]
        assert found["meta"]["billed_units"] == {"search_units": 1}
        assert found["meta"]["tokens"]["input_tokens"] == found["usage"]["total_tokens"]
    bare = told(crossed, path, query=QUESTION, documents=TEXTS)
    assert set(bare["results"][0]) == set(bare["data"][0]) == {"index", "relevance_score"}
    error = crossed.post({**body, "top_k": 0}, path).json()
    assert error["error"]["param"] == "top_k"
    assert error["detail"] == error["message"] == error["error"]["message"]


def test_tei_vectors(bert: Server) -> None:
    """A bare list, also of one text; of tokens' vectors; what is alike."""
    vectors = plain(bert)
    np.testing.assert_allclose(told(bert, "/embed", inputs=TEXTS), vectors, atol=1e-5)
    np.testing.assert_allclose(told(bert, "/embed", inputs=TEXTS[0]), vectors[:1], atol=1e-5)
    (bare,) = told(bert, "/embed", inputs=TEXTS[0], normalize=False)
    (rows,) = told(bert, "/embed_all", inputs=TEXTS[0])
    np.testing.assert_allclose(np.mean(rows, axis=0), bare, rtol=1e-4, atol=1e-4)
    assert np.linalg.norm(bare) > 1.5
    inputs = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    alike = told(bert, "/similarity", inputs=inputs, parameters={"truncate": True})
    np.testing.assert_allclose(alike, np.array(vectors[1:]) @ vectors[0], atol=1e-4)
    error = bert.post({"inputs": []}, "/embed").json()
    assert (error["error"], error["error_type"]) == ("inputs is missing or empty.", "validation")


def test_tei_predictions(crossed: Server, bert: Server) -> None:
    """A list for a text or a pair, lists for a list of those; refused without a classifier."""
    (pair,) = told(crossed, "/predict", inputs=[QUESTION, TEXTS[0]])
    ranked = told(crossed, "/rerank", query=QUESTION, texts=TEXTS)
    assert pair["score"] == pytest.approx(
        next(each["score"] for each in ranked if each["index"] == 0), abs=2e-3
    )
    assert pair["label"] == "LABEL_0"
    (single,) = told(crossed, "/predict", inputs=TEXTS[0], raw_scores=True)
    batch = told(crossed, "/predict", inputs=[[TEXTS[0]], [QUESTION, TEXTS[0]]], raw_scores=True)
    assert batch[0][0]["score"] == pytest.approx(single["score"], abs=1e-3)
    assert 1 / (1 + np.exp(-batch[1][0]["score"])) == pytest.approx(pair["score"], abs=1e-3)
    wrong: list[Any] = [["a", "b", "c"], [["a", "b", "c"]], [[]], [["a"], "b"], [], None]
    for inputs in wrong:
        assert crossed.post({"inputs": inputs}, "/predict").status_code == 400
    error = bert.post({"inputs": "a"}, "/predict").json()
    assert "Ask /embed." in error["error"]


def test_predictions_of_several_classes(tmp_path: Path) -> None:
    """Their labels, the best first, with the sum 1."""
    model = write_qwen3(tmp_path / "reranker.gguf", reranks=True)
    with serving("--model", model, "-t", "1") as server:
        found = told(server, "/predict", inputs=[[QUESTION, TEXTS[0]]])[0]
        score = told(server, "/rerank", query=QUESTION, texts=TEXTS[:1])[0]["score"]
    assert sorted(each["label"] for each in found) == ["no", "yes"]
    assert len(found) == len(YES_NO)
    assert found[0]["score"] >= found[1]["score"]
    assert sum(each["score"] for each in found) == pytest.approx(1, abs=1e-4)
    assert next(each["score"] for each in found if each["label"] == "yes") == pytest.approx(
        score, abs=1e-4
    )


def test_words_that_are_not_known(bert: Server) -> None:
    """What would change a vector and cannot is told; what says nothing new is not."""
    asked: list[tuple[str, dict[str, Any], str]] = [
        ("/v2/embed", {"texts": TEXTS, "input_type": "search_query"}, '["input_type"]'),
        ("/v1/embeddings", {"input": TEXTS, "input_type": "query"}, '["input_type"]'),
        ("/v1/embeddings", {"input": TEXTS, "late_chunking": True}, '["late_chunking"]'),
        ("/v1/embeddings", {"input": TEXTS, "normalized": False}, '["normalized"]'),
        ("/embed", {"inputs": TEXTS, "prompt_name": "query"}, '["prompt_name"]'),
        ("/v1/embeddings", {"input": TEXTS, "normalized": True, "encoding_type": "float"}, ""),
        ("/v2/embed", {"texts": TEXTS, "priority": 999, "truncate": "END"}, ""),
        ("/api/embed", {"input": TEXTS, "truncate": True, "keep_alive": "5m"}, ""),
    ]
    for path, body, names in asked:
        assert bert.post(body, path).headers.get("x-unknown-fields", "") == names, path
