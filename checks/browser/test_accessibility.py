"""axe-core finds nothing, light, dark and narrow; a keyboard is enough."""

from __future__ import annotations

from typing import Any

import pytest

from checks.browser.conftest import QUESTION
from checks.browser.driving import Browser, Page, endless, expect, tab, visit
from tests.support import http
from tests.support.programs.processes import Server

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
LOOKS = [(scheme, size) for scheme in ("light", "dark") for size in (WIDE, NARROW)]


def violations(page: Page) -> list[str]:
    """What axe-core has against the page as it is now."""
    from axe_playwright_python.sync_playwright import Axe

    found: list[Any] = Axe().run(page).response["violations"]
    return [f"{each['id']}: {[node['html'] for node in each['nodes']]}" for each in found]


def check(page: Page) -> None:
    """No violation, and nothing that is wider than the window."""
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("scheme", "size"), LOOKS, ids=lambda value: str(value)[:14])
def test_axe(
    speaker: Server, slow_server: Server, browser: Browser, scheme: str, size: dict[str, int]
) -> None:
    """All parts of the page, empty, at work and with answers."""
    options = {"color_scheme": scheme, "viewport": size, "reduced_motion": "reduce"}
    body = {"prompt": "Hello", "max_tokens": 1900, "ignore_eos": True, "stream": True}
    with tab(browser, **options) as page:
        visit(page, slow_server)
        endless(page)
        check(page)
        page.click("#tab-write")
        check(page)
        url = f"{slow_server.url}/v1/completions"
        with http.stream("POST", url, json=body) as answer:
            next(answer.iter_lines())
            page.fill("#prompt", "Hello")
            page.evaluate("document.getElementById('max_tokens').value = 1900")
            page.click("#write-send")
            expect(page.locator(".request").first).to_be_visible()
            expect(page.locator("#written span").nth(20)).to_be_attached()
            check(page)
        page.click("#write-stop")
        for part in ("#code", "#ended-part", "#sampling:not([open])"):
            if page.locator(part).count():
                page.click(f"{part} summary")
        page.focus("#written")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#inspector")).to_be_visible()
        check(page)

        visit(page, speaker)
        page.click("#system-part summary")
        page.click("#history-part summary")
        page.fill("#message", QUESTION)
        page.keyboard.press("Enter")
        expect(page.locator("#chat-status")).to_contain_text("ended by")
        page.click("#messages summary")
        check(page)


def test_the_key_dialog_and_loading(server: Server, browser: Browser) -> None:
    """What is rarely seen is as good."""
    refusal = {"error": {"message": "A key is needed."}}
    for scheme in ("light", "dark"):
        with tab(browser, color_scheme=scheme) as page:
            page.route("**/v1/requests*", lambda route: route.fulfill(status=401, json=refusal))
            page.goto(server.url + "/")
            expect(page.locator("#key-dialog")).to_be_visible()
            check(page)
            page.keyboard.press("Escape")
            expect(page.locator("#unlock")).to_be_visible()
            page.evaluate("document.getElementById('loading').hidden = false")
            check(page)


def test_keyboard(server: Server, page: Page) -> None:
    """From the top to an answer and its tokens by keys alone."""
    visit(page, server)
    page.keyboard.press("Tab")
    expect(page.locator("#tab-chat")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-write")).to_be_focused()
    expect(page.locator("#write")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.type("Hello")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#write-status")).to_contain_text("ended by")
    for _ in range(4):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "written":
            break
    page.keyboard.press("ArrowRight")
    expect(page.locator("#inspector")).to_be_visible()
