"""A Chromium to look at the page with; skips who imports this where there is none."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs.processes import PATIENCE_S, Server

# Set by `make test-page`.
VENV = os.environ.get("PAGE_VENV")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
if VENV is None:
    pytest.skip("`make test-page` installs Playwright and runs them", allow_module_level=True)
if CHROMIUM is None:
    pytest.skip(f"this machine has none of {', '.join(NAMES)}", allow_module_level=True)

sys.path += map(str, Path(VENV).glob("lib/python*/site-packages"))
from playwright.sync_api import Browser, Page, expect, sync_playwright  # noqa: E402

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
# What a browser says of an answer that is an error; the page says it in its own words.
EXPECTED = ("Failed to load resource", "net::ERR_")

expect.set_options(timeout=1000 * PATIENCE_S)


@contextlib.contextmanager
def chromium() -> Generator[Browser]:
    """The one browser of a run."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def tab(browser: Browser, **options: Any) -> Generator[Page]:
    """A tab that nobody used before. Fails where the page's script did, or broke its policy."""
    context = browser.new_context(**options)
    context.set_default_timeout(1000 * PATIENCE_S)
    page = context.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
    try:
        yield page
    finally:
        context.close()
    assert [line for line in said if not any(words in line for words in EXPECTED)] == []


def visit(page: Page, server: Server) -> None:
    """Open the page of a worker that is ready."""
    page.goto(server.url + "/")
    expect(page.locator("#state")).to_have_text("live")


def answer_of(server: Server, body: dict[str, Any], path: str = "/v1/completions") -> Any:
    """The one choice that a request of the page gets without a stream."""
    answer = server.post({**body, "stream": False, "stream_options": None}, path)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def sent_by(page: Page, path: str) -> list[dict[str, Any]]:
    """A list that gets the body of each request of the page to this path."""
    bodies: list[dict[str, Any]] = []
    page.on(
        "request",
        lambda request: bodies.append(request.post_data_json) if path in request.url else None,
    )
    return bodies
