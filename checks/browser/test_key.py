"""The key: asked for where one is set, never shown, never kept."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from checks.browser.driving import Page, endless, expect
from tests.support.programs.processes import Server, serving

KEY = "k3y-with/pUnct+uation=="


@pytest.fixture(scope="module")
def locked(tiny: Path) -> Generator[Server]:
    """A worker with a key."""
    with serving("--model", tiny, "-t", "1", "-c", "2048", "--api-key", KEY) as running:
        yield running


def test_key(locked: Server, page: Page) -> None:
    """A wrong key is told, the right one opens, and nothing of it stays where pages keep things."""
    page.goto(locked.url + "/")
    expect(page.locator("#key-dialog")).to_be_visible()
    expect(page.locator("#key")).to_be_focused()
    expect(page.locator("#key-error")).to_have_text("")
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#key-error")).to_have_text("That key is wrong.")
    assert page.locator("#write-send").is_disabled()
    page.fill("#key", KEY)
    page.keyboard.press("Enter")
    expect(page.locator("#state")).to_have_text("live")
    expect(page.locator("#key-dialog")).to_be_hidden()

    endless(page)
    page.click("#tab-write")
    page.click("#sampling summary")
    page.fill("#prompt", "Hello")
    page.fill("#max_tokens", "5")
    page.click("#write-send")
    expect(page.locator("#write-status")).to_contain_text("5 tokens")
    page.click("#code summary")
    expect(page.locator("#curl")).to_contain_text('"Authorization: Bearer $API_KEY"')
    expect(page.locator("#python")).to_contain_text('os.environ["API_KEY"]')
    kept = (
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
    )
    assert KEY not in page.evaluate(kept)
    assert KEY not in page.content()
    assert page.input_value("#key") == ""
    assert page.context.cookies() == []

    page.reload()
    expect(page.locator("#key-dialog")).to_be_visible()


def test_later(locked: Server, page: Page) -> None:
    """Who closes the dialog can open it again."""
    page.goto(locked.url + "/")
    expect(page.locator("#key-dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#key-dialog")).to_be_hidden()
    expect(page.locator("#state")).to_have_text("needs a key")
    page.click("#unlock")
    page.fill("#key", KEY)
    page.click("text=Use this key")
    expect(page.locator("#state")).to_have_text("live")
