"""Embeddings of images, by a model that sees."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.api.media.asked import PICTURE, ROWS, picture, words
from tests.support.models.projectors import png
from tests.support.programs.processes import Server, serving

pytestmark = pytest.mark.mtmd
EMBEDDINGS = "/v1/embeddings"
OTHER = png(seed=3)


@pytest.fixture(scope="module")
def seeing_vectors(llava: Path) -> Generator[Server]:
    with serving("--model", llava, "--ctx-size", "2048", "--pooling", "mean") as running:
        yield running


def item(*parts: Any) -> dict[str, Any]:
    """One input of parts."""
    return {"content": list(parts)}


def _vectors(server: Server, *items: Any) -> np.ndarray:
    reply = server.post({"input": list(items)}, EMBEDDINGS)
    assert reply.status_code == 200, reply.text
    return np.array([each["embedding"] for each in reply.json()["data"]])


def test_an_image_counts(seeing_vectors: Server) -> None:
    """Each input has one vector: of the same image and text the same, of another one another,
    whatever else is in the request; an input of text has the vector that the text has."""
    same, again, other, alone, text, bare = _vectors(
        seeing_vectors,
        item(picture(), words("what is it?")),
        item(picture(PICTURE), words("what is it?")),
        item(picture(OTHER), words("what is it?")),
        item(picture()),
        item(words("what is it?")),
        "what is it?",
    )
    assert np.allclose(same, again, atol=1e-3)
    assert np.allclose(text, bare, atol=1e-3)
    for one, two in ((same, other), (same, alone), (same, text)):
        assert one @ two < 0.9999
    assert np.allclose(np.linalg.norm([same, alone], axis=1), 1, atol=1e-3)
    before, after = _vectors(
        seeing_vectors, item(picture(), words("a b")), item(words("a b"), picture())
    )
    assert not np.allclose(before, after, atol=1e-3)


def test_usage_counts_its_vectors(seeing_vectors: Server) -> None:
    """They count as tokens of the prompt."""
    used = [
        seeing_vectors.post({"input": [each]}, EMBEDDINGS).json()["usage"]["prompt_tokens"]
        for each in (item(words("a b")), item(picture(), words("a b")))
    ]
    assert used[1] == used[0] + ROWS


def test_while_others_write(seeing_vectors: Server) -> None:
    """Texts and images of several requests come as they come alone."""
    wanted = _vectors(seeing_vectors, item(picture(), words("what is it?")))[0]
    items = [item(picture(), words("what is it?")), *(f"text {n}" for n in range(20))]
    told = _vectors(seeing_vectors, *items)
    assert np.allclose(told[0], wanted, atol=1e-3)


def test_refused(seeing_vectors: Server, tiny: Path) -> None:
    """A broken image names its place, and a model that sees nothing says so; what is too long
    beside images is not told of cutting, which is refused."""
    broken = seeing_vectors.post({"input": [item(picture(b"hello"))]}, EMBEDDINGS)
    assert broken.status_code == 400
    assert broken.json()["error"]["param"] == "input[0]"
    with serving("--model", tiny, "--pooling", "mean") as running:
        blind = running.post({"input": ["a", item(picture())]}, EMBEDDINGS)
    assert blind.status_code == 400
    assert "reads text only" in blind.json()["error"]["message"]
    cut = {"input": [item(picture())], "truncate_prompt_tokens": 4}
    assert seeing_vectors.post(cut, EMBEDDINGS).json()["error"]["param"] == "input"
    long = [item(picture(), words("x " * 3000)), item(words("x " * 3000)), "x " * 3000]
    for number in range(len(long)):
        body = {"input": [item(picture()), long[number]]}
        told = seeing_vectors.post(body, EMBEDDINGS).json()["error"]["message"]
        assert "Shorten it: inputs with images are not cut." in told
