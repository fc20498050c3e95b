"""ms-marco-MiniLM-L-12-v2 on 20 questions with six documents each, beside ONNX Runtime in float."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
import pytest

from checks.real.bert import cross_encoder
from checks.real.questions import sets
from checks.real.test_commands import worker
from checks.real.texts import texts
from checks.real.words import words
from tests.support import http
from tests.support.programs.processes import Server, serving

HERE, PATIENCE_S = Path(__file__).parent, 600.0
# Level -> logits may be off by so much in the mean, and at most. Measured: 0.002 and
# 0.015, 0.009 and 0.08, 0.04 and 0.39.
LEVELS = {"F16": (0.005, 0.05), "Q8_0": (0.03, 0.25), "Q4_K_M": (0.15, 1.2)}
# A document that the float model has so much before another one is before it in any level.
SURE = 2.0


class Expected(msgspec.Struct):
    """What `reference_vectors.py` kept."""

    scores: list[list[float]]
    tokens: list[list[int]]


@pytest.fixture(scope="module")
def expected() -> Expected:
    """The file."""
    return msgspec.json.decode((HERE / "ranking.json").read_bytes(), type=Expected)


@pytest.fixture(scope="module")
def f16(brought: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the converter writes it, with the pooler."""
    return cross_encoder().write(tmp_path_factory.mktemp("ranking") / "ms-marco-MiniLM-F16.gguf")


def ranked(server: Server, question: str, documents: list[str]) -> list[float]:
    """Logits, in the order of the documents."""
    body = {"query": question, "documents": documents, "raw_scores": True}
    answer = http.post(server.url + "/v1/rerank", json=body, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    found = {each["index"]: each["relevance_score"] for each in answer.json()["results"]}
    return [found[place] for place in range(len(documents))]


@pytest.mark.parametrize("level", LEVELS)
def test_scores(level: str, f16: Path, expected: Expected, tmp_path: Path) -> None:
    """The best document is the best, none is before one that is surely better, and logits are
    near."""
    path = f16
    if level != "F16":
        path = tmp_path / f"{level}.gguf"
        done = worker("quantize", f16, path, level)
        assert done.returncode == 0, done.stderr
    with serving("--model", path) as server:
        found = np.array([ranked(server, *each) for each in sets()])
    exact = np.array(expected.scores)
    off = np.abs(found - exact)
    best = int((found.argmax(1) == exact.argmax(1)).sum())
    orders = int((np.argsort(found) == np.argsort(exact)).all(1).sum())
    swapped = [
        float(abs(real[one] - real[other]))
        for real, made in zip(exact, found, strict=True)
        for one, other in combinations(range(len(real)), 2)
        if (real[one] - real[other]) * (made[one] - made[other]) < 0
    ]
    print(
        f"{level}: off by {off.mean():.4f} in the mean, {off.max():.3f} at most; best {best} of "
        f"{len(exact)}, whole order {orders}, {len(swapped)} pairs swapped, the farthest apart "
        f"{max(swapped, default=0.0):.2f}"
    )
    mean, most = LEVELS[level]
    assert best == len(exact)
    assert max(swapped, default=0.0) < SURE
    assert off.mean() < mean
    assert off.max() < most
    assert level != "F16" or orders == len(exact)


def test_a_pair_alone(f16: Path, expected: Expected) -> None:
    """A pair scores alone what it scores among others, and one text has no second type."""
    question, documents = sets()[0]
    with serving("--model", f16) as server:
        alone = [ranked(server, question, [document])[0] for document in documents]
    np.testing.assert_allclose(alone, expected.scores[0], atol=LEVELS["F16"][1])


def test_without_the_pooler(f16: Path, tmp_path: Path) -> None:
    """As the converter leaves it, `check`, `show` and the log say what the file lacks."""
    path = cross_encoder().write(tmp_path / "without.gguf", pooler=False)
    for command in ("check", "show"):
        assert "pooler is missing" in worker(command, path).stdout
        assert "pooler" not in worker(command, f16).stdout
    with serving("--model", path) as server:
        assert "pooler" in str(server.logged("scores are off")["reason"])


def test_tokens(f16: Path, expected: Expected) -> None:
    """Texts of 20 scripts, and what tokenisers stumble over, have the tokens that BERT has."""
    with serving("--model", f16) as server:
        for text, tokens in zip([*words(), *texts()], expected.tokens, strict=True):
            body = {"prompt": text, "parse_special": True}
            answer = http.post(server.url + "/tokenize", json=body).json()
            assert answer["tokens"] == tokens, text
