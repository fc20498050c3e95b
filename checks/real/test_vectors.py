"""all-MiniLM-L6-v2 on 500 texts, and two more BERTs, beside their float weights in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from checks.real.bert import Bert, bge_small, colbert, mini_lm
from checks.real.test_commands import worker
from tests.support import http
from tests.support.programs.processes import Server, serving

COUNT, PATIENCE_S = 500, 600.0
# Level -> the least cosine to the float weights, and of the ten nearest texts how many are the same
# on average. Measured: 0.99999 and 10.0; 0.9990 and 9.8; 0.9853 and 9.0.
LEVELS = {"F16": (0.9999, 9.9), "Q8_0": (0.998, 9.5), "Q4_K_M": (0.96, 8.0)}


def texts() -> list[str]:
    """5 to 30 words of a text in English each."""
    words = (Path(__file__).parent / "text.txt").read_text().split()
    return [" ".join(words[7 * at : 7 * at + 5 + at % 26]) for at in range(COUNT)]


@pytest.fixture(scope="module")
def model(brought: None) -> Bert:
    """The float weights."""
    return mini_lm()


@pytest.fixture(scope="module")
def expected(model: Bert) -> np.ndarray:
    """float64 [texts, 384]"""
    return np.stack([model.vector(model.tokens(text)) for text in texts()])


@pytest.fixture(scope="module")
def f16(model: Bert, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file."""
    return model.write(tmp_path_factory.mktemp("minilm") / "all-MiniLM-L6-v2-F16.gguf")


def vectors(server: Server, given: Sequence[str]) -> np.ndarray:
    answer = http.post(
        server.url + "/v1/embeddings", json={"input": list(given)}, timeout=PATIENCE_S
    )
    assert answer.status_code == 200, answer.text
    return np.array([entry["embedding"] for entry in answer.json()["data"]])


def nearest(rows: np.ndarray) -> list[set[int]]:
    """Of each text the ten that are most like it."""
    likeness = rows @ rows.T - 2 * np.eye(len(rows))
    return [set(order[-10:]) for order in np.argsort(likeness)]


@pytest.mark.parametrize("level", LEVELS)
def test_levels(level: str, f16: Path, expected: np.ndarray, tmp_path: Path) -> None:
    """How near each level's vectors are, and whether the same texts are near each other."""
    path = f16
    if level != "F16":
        path = tmp_path / f"{level}.gguf"
        done = worker("quantize", f16, path, level)
        assert done.returncode == 0, done.stderr
    with serving("--model", path) as server:
        found = vectors(server, texts())
    cosines = (found * expected).sum(axis=1)
    pairs = zip(nearest(found), nearest(expected), strict=True)
    same = float(np.mean([len(one & another) for one, another in pairs]))
    print(f"{level}: cosine {cosines.min():.6f}, {same:.2f} of the 10 nearest")
    least, shared = LEVELS[level]
    assert cosines.min() >= least
    assert same >= shared


def test_tokens_and_neighbours(model: Bert, f16: Path) -> None:
    """Texts are tokenised as BERT does it; a text alone is what it is among others."""
    some = texts()[::25]
    with serving("--model", f16) as server:
        for text in some:
            told = http.post(server.url + "/tokenize", json={"prompt": text}).json()
            assert told["tokens"] == model.tokens(text)
        together = vectors(server, some)
        for text, vector in zip(some, together, strict=True):
            assert np.abs(vectors(server, [text])[0] - vector).max() < 2e-4


def test_first_tokens(brought: None, tmp_path: Path) -> None:
    """bge-small makes the first token's vector."""
    model = bge_small()
    some = texts()[::50]
    exact = np.stack([model.vector(model.tokens(text)) for text in some])
    with serving("--model", model.write(tmp_path / "bge.gguf")) as server:
        found = vectors(server, some)
    cosines = (found * exact).sum(axis=1)
    print(f"bge: cosine {cosines.min():.6f}")
    assert cosines.min() >= LEVELS["F16"][0]


def test_each_token(brought: None, tmp_path: Path) -> None:
    """answerai-colbert makes a vector for each token, and no token's is another's."""
    model = colbert()
    with serving("--model", model.write(tmp_path / "colbert.gguf")) as server:
        for text in texts()[::100]:
            answer = http.post(server.url + "/embedding", json={"content": text}).json()
            found = np.array(answer[0]["embedding"])
            exact = model.vector(model.tokens(text))
            assert found.shape == exact.shape
            found /= np.linalg.norm(found, axis=1, keepdims=True)
            cosines = (found * exact).sum(axis=1)
            print(f"colbert: cosine {cosines.min():.6f}")
            assert cosines.min() >= LEVELS["F16"][0]
