"""Scores of tiny rerankers are those that numpy makes, and texts stay texts."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.models.embedders import TEMPLATE, YES_NO, Embedder, write_qwen3
from tests.support.programs.processes import Server, serving
from worker.http.paths import MESSAGES, OLLAMA, WRITING

QUESTION = "is it wet?"
TEXTS = ["it rains.", "the sun is out today", "a [SEP] b", "", "wet wet wet"]
CLS, SEP = 2, 3


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Server, Embedder]]:
    """A BERT that reads both texts at once, with a classifier of one output."""
    model = Embedder("bert", pooling=None, classifier=1, encoding="F16")
    path = model.write(tmp_path_factory.mktemp("crossed") / "crossed.gguf")
    with serving("--model", path, "-t", "1") as server:
        yield server, model


def plain(server: Server, text: str) -> list[int]:
    body = {"prompt": text, "add_special_tokens": False, "parse_special": False}
    return server.post(body, "/tokenize").json()["tokens"]


def scores_of(server: Server, texts: list[str], **fields: Any) -> list[float]:
    body = {"query": QUESTION, "documents": texts, **fields}
    answer = server.post(body, "/v1/rerank")
    assert answer.status_code == 200, answer.text
    found = {each["index"]: each["relevance_score"] for each in answer.json()["results"]}
    return [found[place] for place in range(len(texts))]


def test_a_cross_encoder(crossed: tuple[Server, Embedder]) -> None:
    """[CLS] question [SEP] text [SEP], what a text spells out among it; alone as together."""
    server, model = crossed
    for text, score, raw in zip(
        TEXTS, scores_of(server, TEXTS), scores_of(server, TEXTS, raw_scores=True), strict=True
    ):
        pair = [CLS, *plain(server, QUESTION), SEP, *plain(server, text), SEP]
        logit = float(model.logits(pair)[0])
        assert raw == pytest.approx(logit, abs=2e-2)
        assert score == pytest.approx(1 / (1 + np.exp(-logit)), abs=5e-3)
        assert scores_of(server, [text])[0] == pytest.approx(score, abs=1e-3)


def test_the_yes_of_a_qwen3(tmp_path: Path) -> None:
    """By the file's template, whose control tokens no text adds to; softmax of yes and no."""
    text = "it rains.</s><s>"
    vectors = write_qwen3(tmp_path / "vectors.gguf", reranks=False)
    with serving("--model", vectors, "-t", "1") as server:
        filled = TEMPLATE.removeprefix("<s>").removesuffix("</s>")
        filled = filled.replace("{query}", QUESTION).replace("{document}", text)
        pair = [1, *plain(server, filled), 2]
        body = {"content": pair, "embd_normalize": -1}
        hidden = np.array(server.post(body, "/embedding").json()[0]["embedding"][0])
    model = write_qwen3(tmp_path / "reranker.gguf", reranks=True)
    with serving("--model", model, "-t", "1") as server:
        (score,) = scores_of(server, [text])
        answer = server.post({"query": QUESTION, "documents": [text]}, "/v1/rerank").json()
        for path in sorted(WRITING - {OLLAMA + "chat", OLLAMA + "generate", MESSAGES}):
            assert server.post({"prompt": "a"}, path).json()["error"]["code"] == "no_text", path
        assert server.post({"input": "a"}, "/v1/embeddings").json()["error"]["code"] == "no_vectors"
    yes, no = np.exp(YES_NO @ hidden)
    assert score == pytest.approx(yes / (yes + no), abs=2e-3)
    assert answer["usage"]["prompt_tokens"] == len(pair)


def test_vectors_rank_too(tmp_path: Path) -> None:
    """By the cosine."""
    model = Embedder("bert")
    with serving("--model", model.write(tmp_path / "bert.gguf"), "-t", "1") as server:
        first = model.vector([CLS, *plain(server, QUESTION), SEP])
        expected = [first @ model.vector([CLS, *plain(server, text), SEP]) for text in TEXTS]
        np.testing.assert_allclose(scores_of(server, TEXTS), expected, atol=1e-3)


def test_shapes_of_the_answer(crossed: tuple[Server, Embedder]) -> None:
    """Cohere's, Jina's, llama-server's and vLLM's, and text-embeddings-inference's list."""
    server, _ = crossed
    scores = scores_of(server, TEXTS)
    best = max(range(len(TEXTS)), key=lambda place: scores[place])
    wrapped = [{"text": text} for text in TEXTS]
    body = {"query": QUESTION, "documents": wrapped, "top_n": 2, "return_documents": True}
    for path in ("/v1/rerank", "/v2/rerank", "/rerank", "/reranking", "/v1/reranking"):
        first, second = server.post(body, path).json()["results"]
        assert (first["index"], first["document"]) == (best, {"text": TEXTS[best]})
        assert first["relevance_score"] >= second["relevance_score"]
    listed = server.post({"query": QUESTION, "texts": TEXTS, "return_text": True}, "/rerank").json()
    assert listed[0] == {"index": best, "score": scores[best], "text": TEXTS[best]}
    pairs = server.post({"text_1": QUESTION, "text_2": TEXTS}, "/v1/score").json()["data"]
    assert [each["score"] for each in pairs] == pytest.approx(scores, abs=1e-4)
    several = server.post({"queries": [QUESTION] * 2, "documents": TEXTS[:2]}, "/score").json()
    assert [each["score"] for each in several["data"]] == pytest.approx(scores[:2], abs=2e-3)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"documents": ["a"]}, "query"),
        ({"query": "a"}, "documents"),
        ({"query": "a", "documents": []}, "documents"),
        ({"query": "a", "documents": [1]}, "documents"),
        ({"query": "a", "documents": ["a"], "top_n": 0}, "top_n"),
        ({"query": "a", "documents": ["a"] * 100_000}, "documents"),
        ({"query": "a", "texts": ["a"] * 100_000}, "texts"),
    ],
)
def test_hostile(crossed: tuple[Server, Embedder], body: Any, param: str) -> None:
    """One sentence that names the field; the next answer is what it was."""
    before = scores_of(crossed[0], TEXTS)
    answer = crossed[0].post(body, "/v1/rerank")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert scores_of(crossed[0], TEXTS) == before


def test_pairs_that_are_none(crossed: tuple[Server, Embedder]) -> None:
    """Of texts in other numbers."""
    for body in ({"text_1": ["a", "b"], "text_2": ["a"]}, {"text_1": "a"}, {"text_2": "a"}):
        assert crossed[0].post(body, "/v1/score").status_code == 400


def test_a_reranker_that_makes_vectors(tmp_path: Path) -> None:
    """With another --pooling, or where its file says so, a reranker ranks nothing by accident."""
    asked = Embedder("bert", pooling=None, classifier=1).write(tmp_path / "asked.gguf")
    says = Embedder("bert", pooling=2, classifier=1).write(tmp_path / "says.gguf")
    for options in (("--model", asked, "--pooling", "mean"), ("--model", says)):
        with serving(*options, "-t", "1") as server:
            for path, body in (
                ("/v1/rerank", {"query": QUESTION, "documents": TEXTS}),
                ("/v1/score", {"text_1": QUESTION, "text_2": TEXTS}),
            ):
                answer = server.post(body, path)
                assert answer.status_code == 400
                assert answer.json()["error"]["code"] == "no_scores"
                assert "--pooling rank" in answer.json()["error"]["message"]
            assert server.post({"input": "a"}, "/v1/embeddings").status_code == 200
            assert server.logged("a reranker that makes embeddings: /v1/rerank refuses")
    with serving("--model", says, "--pooling", "rank", "-t", "1") as server:
        assert len(scores_of(server, TEXTS)) == len(TEXTS)


def test_a_classifier_must_be_there(tmp_path: Path) -> None:
    """Rank pooling of a model without one is refused at the start."""
    path = Embedder("bert").write(tmp_path / "bert.gguf")
    with pytest.raises(AssertionError, match="needs a classifier"):
        serving("--model", path, "--pooling", "rank").__enter__()
