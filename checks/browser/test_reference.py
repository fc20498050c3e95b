"""The API's reference at /docs, in a browser."""

from __future__ import annotations

from typing import Any

import pytest

from checks.browser.driving import Browser, Page, expect, tab
from checks.browser.test_accessibility import violations
from tests.support import http
from tests.support.programs.processes import Server

METHODS = {"get", "post", "put", "delete", "patch"}


def operations(server: Server) -> dict[str, set[str]]:
    """Tag -> the ids of its operations, of the worker's own description."""
    description: dict[str, Any] = http.get(server.url + "/openapi.json").json()
    found: dict[str, set[str]] = {tag["name"]: set() for tag in description["tags"]}
    for item in description["paths"].values():
        for method in METHODS & item.keys():
            found[item[method]["tags"][0]].add(item[method]["operationId"])
    return found


def test_each_api_has_a_page(server: Server, page: Page) -> None:
    """It shows the operations that the description has of this API; all comes from the worker."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(server.url + "/docs")
    for tag, ids in operations(server).items():
        page.locator("nav").get_by_role("link", name=tag, exact=True).click()
        expect(page).to_have_title(f"{tag} - API reference")
        expect(page.locator(".opblock-tag-section")).to_have_count(1)
        expect(page.locator(".opblock")).to_have_count(len(ids))
        shown = page.locator(".opblock").evaluate_all("all => all.map(each => each.id)")
        assert {each.rpartition("-")[2] for each in shown} == ids
    assert all(url.startswith((server.url + "/", "data:")) for url in asked), asked


def test_an_operation_opens(server: Server, page: Page) -> None:
    """A link to one shows it, and a click another one, with all that their bodies refer to."""
    page.goto(server.url + "/docs#/OpenAI/completions")
    expect(page.locator(".opblock.is-open")).to_contain_text("max_tokens")
    page.locator("nav").get_by_role("link", name="Anthropic", exact=True).click()
    page.locator("#operations-Anthropic-messages .opblock-summary-control").click()
    expect(page.locator(".opblock.is-open")).to_contain_text("n_prompt_tokens")
    page.locator(".opblock:not(.is-open) .opblock-summary-control").first.click()
    for number in range(2):
        expect(page.locator(".opblock.is-open").nth(number)).to_contain_text("Request body")
    expect(page.locator(".errors-wrapper")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(server: Server, browser: Browser, scheme: str) -> None:
    """Nothing is wider than 360 pixels."""
    with tab(browser, viewport={"width": 360, "height": 780}, color_scheme=scheme) as page:
        page.goto(server.url + "/docs")
        expect(page.locator(".opblock").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        own = [each for each in violations(page) if "<a href" in each or "nav" in each]
        assert own == []
