"""One browser for all tests, a tab for each, and a model that speaks."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.support.models.speaking import FAMILIES
from tests.support.programs.processes import Server, serving

QUESTION = "What is it?"
THOUGHT = "They want to know."
ANSWER = "It is a duck."
SECOND = "And now?"
SECOND_ANSWER = "Still the duck."


@pytest.fixture(scope="session")
def browser() -> Generator[Any]:
    """Chromium."""
    from checks.browser.driving import chromium

    with chromium() as running:
        yield running


@pytest.fixture
def page(browser: Any) -> Generator[Any]:
    """A tab."""
    from checks.browser.driving import tab

    with tab(browser, viewport={"width": 1280, "height": 900}) as opened:
        yield opened


@pytest.fixture(scope="session")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """Qwen 3 that thinks, and answers two questions."""
    qwen = FAMILIES["qwen3"]
    lines = {QUESTION: qwen.answer(THOUGHT, ANSWER), SECOND: qwen.answer("", SECOND_ANSWER)}
    recitals = [qwen.recital(text, cue, seed) for seed, (cue, text) in enumerate(lines.items())]
    model = qwen.write_model(tmp_path_factory.mktemp("browser") / "duck.gguf", recitals)
    with serving("--model", model, "-c", "4096", "-np", "2", "-t", "1") as running:
        yield running
