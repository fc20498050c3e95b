"""Decide: typed questions about a text, and the probability of each answer."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from checks.browser.driving import Page, expect, sent_by, visit
from tests.support import http
from tests.support.programs.processes import Server, serving

TEXT = "The <b>lift</b> is stuck."
LINES = "It is broken.\n\nWho repairs it? <i>lifts</i> | heating | plumbing\nHow urgent: low < high"
QUESTIONS = [
    {"type": "predicate", "instructions": "It is broken."},
    {
        "type": "choice",
        "instructions": "Who repairs it?",
        "choices": [{"value": "<i>lifts</i>"}, {"value": "heating"}, {"value": "plumbing"}],
    },
    {
        "type": "score",
        "instructions": "How urgent",
        "levels": [{"label": "low"}, {"label": "high"}],
    },
]


def percent(part: float) -> str:
    return "< 0.1 %" if part < 0.001 else f"{100 * part:.{1 if part < 0.1 else 0}f} %"


def test_bars(demo_server: Server, page: Page) -> None:
    """Lines become questions; a row with its probability for each option, and no HTML of theirs."""
    visit(page, demo_server, "decide")
    bodies = sent_by(page, "/v1/decisions")
    page.fill("#judged", TEXT)
    page.fill("#asked", LINES)
    page.press("#asked", "Control+Enter")
    expect(page.locator("#decide-status")).to_contain_text("3 answers")
    (body,) = bodies
    assert body["input"] == TEXT
    assert body["questions"] == QUESTIONS
    answers = http.post(f"{demo_server.url}/v1/decisions", json=body).json()["answers"]
    rows = page.locator("#decided tbody tr")
    assert rows.locator("th").all_text_contents() == [
        "true", "false", "<i>lifts</i>", "heating", "plumbing", "low", "high",
    ]  # fmt: skip
    first, *others = answers
    expected = [first["probability"], 1 - first["probability"]]
    expected += [each["probability"] for answer in others for each in answer["probabilities"]]
    shown = page.locator("#decided tbody td:not(.bar)").all_text_contents()
    assert shown == [percent(part) for part in expected]
    page.click("#code summary")
    expect(page.locator("#python")).to_contain_text("client.decisions.create")


def test_an_error_is_told(demo_server: Server, page: Page) -> None:
    """In the worker's words; the next try is answered."""
    visit(page, demo_server, "decide")
    page.fill("#asked", "Which? one | one")
    page.click("#decide-send")
    expect(page.locator("#decide-status.failed")).not_to_be_empty()
    page.fill("#asked", "It rains.")
    page.click("#decide-send")
    expect(page.locator("#decide-status")).to_contain_text("1 answer ")


@pytest.fixture(scope="module")
def demo_server() -> Generator[Server]:
    with serving("-t", "1") as running:
        yield running
