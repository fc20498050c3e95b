"""The tab Embeddings: how alike texts are, of an embedding model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator

import numpy as np
import pytest

from checks.browser.driving import Page, expect, sent_by, visit
from tests.support import http
from tests.support.models.embedders import Embedder
from tests.support.programs.processes import Server, serving

LINES = ["the rain in spain", "<b>the plain</b>", "it stays"]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A model that makes vectors and writes nothing."""
    model = Embedder("bert").write(tmp_path_factory.mktemp("browser") / "bert.gguf")
    with serving("--model", model, "-t", "1") as running:
        yield running


def test_table(embedder: Server, page: Page) -> None:
    """The one tab; a cosine for each two lines, and the same by the program that is shown."""
    visit(page, embedder)
    expect(page.locator("#tab-compare")).to_be_visible()
    expect(page.locator("#tab-write")).to_be_hidden()
    expect(page.locator("#sampling")).to_be_hidden()
    bodies = sent_by(page, "/v1/embeddings")
    page.fill("#lines", "\n\n".join(LINES))
    page.click("#compare-send")
    expect(page.locator("#compare-status")).to_contain_text("3 embeddings of 64 numbers")
    (body,) = bodies
    assert body["input"] == LINES
    answer = http.post(f"{embedder.url}/v1/embeddings", json=body).json()
    vectors = np.array([each["embedding"] for each in answer["data"]])
    rows = page.locator("#likeness tbody tr")
    assert rows.locator("th").all_text_contents() == [
        f"{number} {line}" for number, line in enumerate(LINES, 1)
    ]
    shown = [float(text) for text in rows.locator("td").all_text_contents()]
    np.testing.assert_allclose(np.reshape(shown, (3, 3)), vectors @ vectors.T, atol=6e-3)
    page.click("#code summary")
    expect(page.locator("#python")).to_contain_text("embeddings")
    program = page.locator("#python").text_content()
    assert program is not None
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert len(run.stdout.splitlines()) == 3


def test_an_error_is_told(embedder: Server, page: Page) -> None:
    """In the worker's words; the next try is answered."""
    visit(page, embedder)
    page.fill("#lines", "word " * 3000)
    page.click("#compare-send")
    expect(page.locator("#compare-status.failed")).to_contain_text("tokens")
    page.fill("#lines", "word")
    page.click("#compare-send")
    expect(page.locator("#compare-status")).to_contain_text("1 embedding of")


def test_a_model_that_writes_has_no_such_tab(slow_server: Server, page: Page) -> None:
    visit(page, slow_server)
    expect(page.locator("#tab-chat")).to_be_visible()
    expect(page.locator("#tab-compare")).to_be_hidden()


def test_keyboard(page: Page) -> None:
    """With both kinds of tabs the arrows go round."""
    with serving("--pooling", "mean", "-t", "1") as both:
        visit(page, both)
        page.focus("#tab-chat")
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#tab-compare")).to_be_focused()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#chat")).to_be_visible()
