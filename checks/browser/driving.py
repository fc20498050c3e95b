"""A Chromium to look at the page with; skips who imports this where there is none."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs.processes import PATIENCE_S, Server

# Set by `make check SUITE=page`.
VENV = os.environ.get("PAGE_VENV")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
if VENV is None:
    pytest.skip("`make check SUITE=page` installs and runs them", allow_module_level=True)
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


def visit(page: Page, server: Server, panel: str | None = None) -> None:
    """Open the page of a worker that is ready; with a panel, there and with its fields."""
    page.goto(server.url + "/")
    expect(page.locator("#state")).to_have_text("live")
    if panel:
        page.click(f"#tab-{panel}")
        page.click("#sampling summary")


def endless(page: Page) -> None:
    """Let no answer end before its limit: a model of random weights ends it anywhere."""

    def go_on(route: Any) -> None:
        route.continue_(post_data=json.dumps({**route.request.post_data_json, "ignore_eos": True}))

    page.route("**/v1/completions", go_on)


def sent_by(page: Page, path: str) -> list[dict[str, Any]]:
    """A list that gets the body of each request of the page to this path."""
    bodies: list[dict[str, Any]] = []
    page.on(
        "request",
        lambda request: bodies.append(request.post_data_json) if path in request.url else None,
    )
    return bodies


def heard_by(page: Page, path: str) -> list[Any]:
    """A list that gets each answer that the page has from this path; for `choices_of`."""
    answers: list[Any] = []
    page.on("response", lambda answer: answers.append(answer) if path in answer.url else None)
    return answers


def choices_of(answer: Any) -> list[dict[str, Any]]:
    """The choices of a stream that has ended."""
    frames = [json.loads(line[6:]) for line in answer.text().split("\n\n") if line[:7] == "data: {"]
    return [choice for frame in frames for choice in frame["choices"]]
