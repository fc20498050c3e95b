"""Clients from the index get vectors and ranks of a real worker: `make check SUITE=clients`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks.clients.installed import PROGRAMS, interpreter, needs_clients, node_modules, run
from tests.support import http
from tests.support.models.embedders import Embedder
from tests.support.programs.processes import Server, serving

TEXTS = ["the rain in spain", "stays in the plain"]

pytestmark = needs_clients


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A BERT that makes means."""
    model = Embedder("bert").write(tmp_path_factory.mktemp("clients") / "bert.gguf")
    with serving("--model", model, "-t", "1") as running:
        yield running


def wanted(server: Server) -> Any:
    answer = http.post(f"{server.url}/v1/embeddings", json={"input": TEXTS}).json()
    return [each["embedding"] for each in answer["data"]]


def close(found: dict[str, Any], names: set[str], vectors: Any) -> None:
    """Each program has these vectors, or said why not."""
    assert set(found) == names
    for name, rows in found.items():
        assert not isinstance(rows, str), f"{name}: {rows}"
        np.testing.assert_allclose(rows, vectors, atol=1e-4, err_msg=name)


def test_python(server: Server) -> None:
    """openai, Cohere, Voyage, Ollama, Hugging Face, and frameworks over them."""
    said = run(interpreter(), PROGRAMS / "embeddings.py", server.url)
    found = json.loads(said.splitlines()[-1])
    names = {
        "base64", "floats", "langchain", "llama_index", "haystack", "ollama", "langchain_ollama",
        "cohere_v1", "cohere_v2", "voyage", "voyage_refused",
        "llama_index_tei", "hugging_face",
    }  # fmt: skip
    close(found, names, wanted(server))


def test_ranks(server: Server) -> None:
    """Cohere's, Voyage's, Jina's and text-embeddings-inference's, also of a long document."""
    said = run(interpreter(), PROGRAMS / "ranking.py", server.url)
    names = ("cohere_v1", "cohere_v2", "voyage", "langchain_voyage", "llama_index_jina",
             "llama_index_tei")  # fmt: skip
    assert json.loads(said.splitlines()[-1]) == {name: [1, 0, 2] for name in names}


def test_node(server: Server) -> None:
    """openai for Node."""
    folder = node_modules().parent
    for file in (Path(__file__).parent / "node").glob("*.mjs"):
        shutil.copy(file, folder)
    said = run("node", folder / "embeddings.mjs", server.url, "{}")
    close(json.loads(said.splitlines()[-1]), {"base64", "floats"}, wanted(server))
