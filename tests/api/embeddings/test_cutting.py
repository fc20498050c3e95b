"""Texts that are too long: named by their place, or cut as the caller's API cuts."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cases import for_each
from tests.support.models import ggufs
from tests.support.models.embedders import CONTEXT, TEMPLATE, Embedder, write_qwen3
from tests.support.programs.processes import Server, serving

CLS, SEP = 2, 3
SHORT, QUESTION = "the rain in spain", "is it wet?"
LONG = "the rain in spain stays mainly in the plain. " * 9
MANY, BAD = 40, 37


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Server, Embedder]]:
    """It makes means."""
    model = Embedder("bert")
    path = model.write(tmp_path_factory.mktemp("cut") / "bert.gguf")
    with serving("--model", path, "-t", "1") as server:
        yield server, model


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Server, Embedder]]:
    """It reads question and document at once."""
    model = Embedder("bert", pooling=4, classifier=1)
    path = model.write(tmp_path_factory.mktemp("cut") / "crossed.gguf")
    with serving("--model", path, "-t", "1") as server:
        yield server, model


def plain(server: Server, text: str) -> list[int]:
    body = {"prompt": text, "add_special_tokens": False, "parse_special": False}
    return server.post(body, "/tokenize").json()["tokens"]


def vector_of(answer: Any) -> np.ndarray:
    """The first vector of an answer in any shape, of length 1."""
    if isinstance(answer, dict):
        found: dict[str, Any] = {**answer}
        names = ("data", "embeddings", "embedding", "float")
        return vector_of(next(found[name] for name in names if name in found))
    first: Any = answer[0]
    return (
        np.array(answer) / np.linalg.norm(answer) if isinstance(first, float) else vector_of(first)
    )


# Path -> field of the texts, and what refuses those that are too long if it cuts them by default.
VECTORS: dict[str, tuple[str, dict[str, Any]]] = {
    "/v1/embeddings": ("input", {}), "/embedding": ("content", {}), "/embeddings": ("input", {}),
    "/embed": ("inputs", {}), "/v1/embed": ("texts", {"truncate": "NONE"}),
    "/v2/embed": ("texts", {"truncation": False}), "/api/embed": ("input", {"truncate": False}),
}  # fmt: skip
TOKENS: dict[str, tuple[str, dict[str, Any]]] = {
    "/pooling": ("input", {}), "/embed_all": ("inputs", {}),
}  # fmt: skip
RANKS: dict[str, tuple[str, dict[str, Any]]] = {
    "/v1/rerank": ("documents", {"truncation": False}),
    "/v2/rerank": ("documents", {"truncate": "none"}),
    "/rerank": ("documents", {}), "/reranking": ("texts", {}),
    "/v1/reranking": ("documents", {}),
    "/v1/score": ("text_2", {}), "/score": ("documents", {}),
}  # fmt: skip


def ranked(path: str, texts: Any, query: str = QUESTION) -> dict[str, Any]:
    """A body that compares a question with texts."""
    name, _ = RANKS[path]
    return {{"/v1/score": "text_1", "/score": "queries"}.get(path, "query"): query, name: texts}


@for_each("path", {**VECTORS, **TOKENS})
def test_one_bad_text_of_many(bert: tuple[Server, Embedder], path: str) -> None:
    """The error names its place; one text alone is named by its field."""
    name, refused = {**VECTORS, **TOKENS}[path]
    texts: list[Any] = [SHORT] * MANY
    texts[BAD] = LONG
    for given, place in ((texts, f"{name}[{BAD}]"), (LONG, name)):
        if given is LONG and path in ("/v1/embed", "/v2/embed"):
            continue  # Cohere's is a list
        answer = bert[0].post({name: given, **refused}, path)
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        said = error if isinstance(error, str) else error["message"]
        assert said.startswith(f"{place} is too long: ")
        assert f"> {CONTEXT} maximum" in said
        assert "--ctx-size" not in said  # it was trained for no more
        step = "Leave truncate out" if path == "/api/embed" else "truncate_prompt_tokens: -1"
        assert step in said


@for_each(
    "path", [path for path in {**VECTORS, **TOKENS} if path[1:4] not in ("v1/", "v2/", "api")]
)
@for_each("bad", [[], [10**9], [-1], {}, {"text": 1}])
def test_other_bad_inputs_of_many(bert: tuple[Server, Embedder], path: str, bad: Any) -> None:
    """Empty lists, ids that are none, objects without a text."""
    name, _ = {**VECTORS, **TOKENS}[path]
    answer = bert[0].post({name: [*[SHORT] * BAD, bad]}, path)
    assert answer.status_code == 400
    assert f"{name}[{BAD}]" in answer.text


@for_each("path", RANKS)
def test_one_bad_document_of_many(crossed: tuple[Server, Embedder], path: str) -> None:
    """The same of ranks and scores; a question that leaves no room is named itself."""
    name, refused = RANKS[path]
    texts = [SHORT] * MANY
    texts[BAD] = LONG
    error = crossed[0].post({**ranked(path, texts), **refused}, path).json()["error"]
    assert error["param"] == f"{name}[{BAD}]"
    assert error["message"].startswith(f"{name}[{BAD}] is too long: ")
    assert error["n_ctx"] == CONTEXT
    error = crossed[0].post({**ranked(path, [SHORT], LONG), **refused}, path).json()["error"]
    assert error["param"] in ("query", "text_1", "queries")


def test_places_of_pairs(bert: tuple[Server, Embedder], crossed: tuple[Server, Embedder]) -> None:
    """Also of /similarity's and /predict's nested texts."""
    body = {"inputs": {"source_sentence": SHORT, "sentences": [SHORT, LONG]}}
    assert "inputs.sentences[1] is too long" in bert[0].post(body, "/similarity").json()["error"]
    body = {"inputs": [[SHORT], [SHORT, LONG]]}
    assert "inputs[1][1] is too long" in crossed[0].post(body, "/predict").json()["error"]
    body = {"text_1": [SHORT, LONG], "text_2": [SHORT, SHORT]}
    assert crossed[0].post(body, "/v1/score").json()["error"]["param"] == "text_1[1]"


@for_each("path", {**VECTORS, **TOKENS})
@for_each("given", [[1, "a"], ["a", 1], [5, 6, "a", 7]])
def test_texts_among_token_ids(bert: tuple[Server, Embedder], path: str, given: Any) -> None:
    """One list holds texts or the ids of one text: no text is made of both by accident."""
    name, _ = {**VECTORS, **TOKENS}[path]
    answer = bert[0].post({name: given}, path)
    assert answer.status_code == 400, answer.text
    place = next(n for n, each in enumerate(given) if type(each) is not type(given[0]))
    assert f"{name}[{place}]" in answer.text or path in ("/v1/embed", "/v2/embed", "/api/embed")


END: list[dict[str, Any]] = [
    {"truncation": True}, {"truncate": True}, {"truncate": "END"}, {"truncate": "end"},
    {"truncate_prompt_tokens": -1}, {"truncate_prompt_tokens": 4096},
    {"truncate": True, "truncation_direction": "Right"},
    {"truncation": True, "truncation_side": "right"},
]  # fmt: skip
START: list[dict[str, Any]] = [
    {"truncate": "START"}, {"truncate": True, "truncation_direction": "left"},
    {"truncate_prompt_tokens": CONTEXT, "truncation_side": "left"},
    {"truncation": True, "truncation_direction": "Left"},
]  # fmt: skip


@for_each("path", VECTORS)
def test_cut_as_asked(bert: tuple[Server, Embedder], path: str) -> None:
    """To as many tokens as can be, the first or the last ones, between what ends a text."""
    server, model = bert
    name, _ = VECTORS[path]
    own = plain(server, LONG)
    first = model.vector([CLS, *own[: CONTEXT - 2], SEP])
    last = model.vector([CLS, *own[2 - CONTEXT :], SEP])
    cases: list[tuple[dict[str, Any], Any]] = [(fields, first) for fields in END]
    cases += [(fields, last) for fields in START]
    if path == "/api/embed":
        cases = [({}, first), ({"truncate": True}, first)]
    if path in ("/v1/embed", "/v2/embed"):
        cases += [({}, first), ({"max_tokens": 4096}, first)]
    for fields, vector in cases:
        answer = server.post({name: [LONG, SHORT], **fields}, path)
        assert answer.status_code == 200, (fields, answer.text)
        assert vector_of(answer.json()) @ vector > 1 - 1e-5, fields
        assert "x-unknown-fields" not in answer.headers


def test_cut_shorter(bert: tuple[Server, Embedder]) -> None:
    """To so many tokens as are asked for, with those that end a text."""
    server, model = bert
    own = plain(server, LONG)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/v1/embeddings", {"input": LONG, "truncate_prompt_tokens": 20}),
        ("/v2/embed", {"texts": [LONG], "max_tokens": 20}),
    ]
    for path, body in asked:
        found = vector_of(server.post(body, path).json())
        assert found @ model.vector([CLS, *own[:18], SEP]) > 1 - 1e-5
    body = {"texts": [LONG], "max_tokens": 20, "truncate": "START"}
    found = vector_of(server.post(body, "/v2/embed").json())
    assert found @ model.vector([CLS, *own[-18:], SEP]) > 1 - 1e-5


_LISTS = ("/reranking",)  # of those below, as text-embeddings-inference has them


def scores_of(server: Server, path: str, body: dict[str, Any]) -> list[float]:
    """Raw scores in the order of the texts."""
    answer = server.post({**body, "raw_scores": True}, path)
    assert answer.status_code == 200, answer.text
    told: Any = answer.json()
    entries: Any = told if path in _LISTS else told["data"]
    score = "score" if "score" in entries[0] else "relevance_score"
    return [each[score] for each in sorted(entries, key=lambda each: each["index"])]


@for_each("path", RANKS)
def test_documents_cut_as_asked(crossed: tuple[Server, Embedder], path: str) -> None:
    """The document is cut to what the question leaves; both to the half where both are long."""
    server, model = crossed
    query, own = plain(server, QUESTION), plain(server, LONG)
    room = CONTEXT - 3
    first = model.logits([CLS, *query, SEP, *own[: room - len(query)], SEP])[0]
    last = model.logits([CLS, *query, SEP, *own[len(query) - room :], SEP])[0]
    half = model.logits([CLS, *own[: room // 2], SEP, *own[: room - room // 2], SEP])[0]
    usual = path in ("/v1/rerank", "/v2/rerank")
    for fields, score in [(each, first) for each in END + [{}] * usual] + [
        (s, last) for s in START
    ]:
        found = scores_of(server, path, {**ranked(path, [SHORT, LONG]), **fields})
        assert found[1] == pytest.approx(score, abs=2e-2), fields
    found = scores_of(server, path, {**ranked(path, [LONG], LONG), "truncation": True})
    assert found == [pytest.approx(half, abs=2e-2)]


@for_each("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_tokens_of_a_document(crossed: tuple[Server, Embedder], path: str) -> None:
    """Cohere's `max_tokens_per_doc` counts the document; 4,096 as its clients send is fine."""
    server, model = crossed
    query, own = plain(server, QUESTION), plain(server, LONG)
    body = ranked(path, [LONG])
    room = CONTEXT - 3 - len(query)
    for most, count in ((4096, room), (-1, room), (10, 10), (1, 1)):
        (found,) = scores_of(server, path, {**body, "max_tokens_per_doc": most})
        pair = [CLS, *query, SEP, *own[:count], SEP]
        assert found == pytest.approx(model.logits(pair)[0], abs=2e-2)
    for most in (0, -2):
        error = server.post({**body, "max_tokens_per_doc": most}, path).json()["error"]
        assert error["param"] == "max_tokens_per_doc"


def test_cut_in_a_template(tmp_path: Path) -> None:
    """What a file's own template says around two texts stays whole."""
    model = write_qwen3(tmp_path / "reranker.gguf", reranks=True)
    with serving("--model", model, "-t", "1") as server:
        longest = server.post({"query": "a", "documents": [LONG * 99]}, "/rerank").json()["error"][
            "n_ctx"
        ]
        for query, document in ((QUESTION, LONG * 99), (LONG * 99, LONG * 99), (LONG * 99, "a")):
            body = {"query": query, "documents": [document]}
            answer = server.post(body, "/v1/rerank")
            assert answer.status_code == 200, answer.text
            count = answer.json()["usage"]["prompt_tokens"]
            assert longest - 3 <= count <= longest
        short = server.post(
            {**ranked("/rerank", [LONG]), "max_tokens_per_doc": 5}, "/rerank"
        ).json()
        whole = server.post(ranked("/rerank", [LONG[:200]]), "/rerank").json()
        assert short["usage"]["prompt_tokens"] < whole["usage"]["prompt_tokens"]
    assert "{query}" in TEMPLATE


def test_a_text_of_megabytes_is_cut(bert: tuple[Server, Embedder]) -> None:
    """Its tokens beyond what is left are not counted."""
    server, model = bert
    own = plain(server, LONG)
    texts = [LONG * 9000, "a" + LONG * 9000 + LONG]
    for text, fields in zip(texts, ({}, {"truncate": "START"}), strict=True):
        answer = server.post({"texts": [text], **fields}, "/v2/embed")
        assert answer.status_code == 200, answer.text[:300]
        part = own[-(CONTEXT - 2) :] if fields else own[: CONTEXT - 2]
        assert vector_of(answer.json()["embeddings"]) @ model.vector([CLS, *part, SEP]) > 1 - 1e-4


@for_each("nothing", [" ", "\n", "\x01", "\u200b"])
def test_what_gives_no_tokens_is_no_length(
    bert: tuple[Server, Embedder], crossed: tuple[Server, Embedder], nothing: str
) -> None:
    """A text that fits is whole, however much in it the tokenizer drops."""
    server, model = bert
    own, dropped = plain(server, SHORT), nothing * 60_000
    query = plain(server, QUESTION)
    for text in (dropped + SHORT, SHORT + dropped, dropped + SHORT + dropped):
        for end in ("START", "END"):
            answer = server.post({"texts": [text], "truncate": end}, "/v2/embed")
            assert answer.status_code == 200, answer.text[:300]
            found = vector_of(answer.json()["embeddings"])
            assert found @ model.vector([CLS, *own, SEP]) > 1 - 1e-4
            body = {**ranked("/v1/rerank", [text], QUESTION + dropped), "truncate": end}
            assert scores_of(crossed[0], "/v1/rerank", body) == pytest.approx(
                crossed[1].logits([CLS, *query, SEP, *own, SEP]), abs=2e-2
            )


@for_each("names", [("text_1", "text_2"), ("text_1", "documents"), ("queries", "text_2"),
                    ("queries", "documents")])  # fmt: skip
def test_names_of_pairs(bert: tuple[Server, Embedder], names: tuple[str, str]) -> None:
    """A text of a pair is called what the client calls it."""
    for bad in (0, 1):
        texts = [["a", "a"], ["a", "a"]]
        texts[bad][1] = LONG
        answer = bert[0].post(dict(zip(names, texts, strict=True)), "/score")
        assert answer.json()["error"]["param"] == f"{names[bad]}[1]"


@for_each(
    "field",
    [{"truncate": "MIDDLE"}, {"truncation_direction": "up"}, {"truncation_side": "END"},
     {"truncate_prompt_tokens": 0}, {"truncate_prompt_tokens": -2}, {"truncation": "yes"}],
)  # fmt: skip
def test_wrong_words(bert: tuple[Server, Embedder], field: dict[str, Any]) -> None:
    """They are named."""
    (name,) = field
    for path in ("/v1/embeddings", "/embeddings", "/pooling"):
        error = bert[0].post({"input": SHORT, **field}, path).json()["error"]
        assert error["param"] == name
    assert name in bert[0].post({"inputs": SHORT, **field}, "/embed").json()["error"]


def test_what_a_larger_context_takes(tmp_path: Path) -> None:
    """--ctx-size is a next step as far as the model was trained."""
    path = ggufs.write_llama(tmp_path / "llama.gguf", context=2048)
    for size, reach in ((512, "With --ctx-size the worker takes up to 2048 tokens."), (2048, "")):
        options = ("-t", "1", "--ctx-size", str(size), "--pooling", "mean")
        with serving("--model", path, *options) as server:
            error = server.post({"input": ["a", LONG * 20]}, "/v1/embeddings").json()["error"]
        assert error["n_ctx"] == size
        assert error["message"].startswith("input[1] is too long: ")
        assert error["message"].endswith(reach)
        assert ("--ctx-size" in error["message"]) == bool(reach)
