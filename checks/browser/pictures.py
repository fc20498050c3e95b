"""Takes the screenshots in docs/: `PAGE_VENV=.venv-page python -m checks.browser.pictures FILE`.

FILE is the model that answers; the pictures of `docs/` were taken with SmolLM2-135M-Instruct-Q4_1.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image

from checks.browser.driving import Page, chromium, expect, tab, visit
from tests.support.programs.processes import Server, serving

DOCS = Path(__file__).parents[2] / "docs"
QUESTION = "How do I add two numbers in Python?"
JUDGED = "The lift in the east wing is stuck between two floors, and somebody is in it."
ASKED = """Somebody is in danger.
Who repairs it? lift service | heating | plumbing
How urgent: low < high"""
SIZES = {"page": {"width": 1280, "height": 900}, "page-phone": {"width": 360, "height": 780}}


def ask(page: Page, server: Server) -> None:
    """A question with an answer and a second version of it."""
    visit(page, server)
    page.click("#sampling summary")
    page.fill("#seed", "1")
    page.fill("#temperature", "0.2")
    page.click("#sampling summary")
    page.fill("#message", QUESTION)
    page.keyboard.press("Enter")
    for version in ("", "2 of 2"):
        expect(page.locator("#messages")).to_contain_text(version)
        expect(page.locator("#chat-send")).to_be_enabled()
        expect(page.locator("#chat-status")).to_contain_text("ended by")
        if not version:
            page.get_by_role("button", name="Regenerate").click()
            expect(page.locator("#chat-stop")).to_be_enabled()


def decide(page: Page, server: Server) -> None:
    """Three questions of three types, answered."""
    visit(page, server, "decide")
    page.fill("#judged", JUDGED)
    page.fill("#asked", ASKED)
    page.press("#asked", "Control+Enter")
    expect(page.locator("#decide-status")).to_contain_text("3 answers")


def save(page: Page, name: str) -> None:
    """What the tab shows from its top, as docs/NAME.png."""
    page.evaluate("scrollTo(0, 0)")
    file = DOCS / f"{name}.png"
    page.screenshot(path=file)
    # A third of the bytes, and no difference that an eye sees.
    Image.open(file).convert("RGB").quantize(128).save(file, optimize=True)


def main() -> None:
    """Write five PNG files: a chat wide and on a phone, light and dark, and decisions."""
    parser = argparse.ArgumentParser("checks.browser.pictures", description=__doc__)
    parser.add_argument("model", type=Path)
    model = parser.parse_args().model
    with serving("--model", model) as server, chromium() as browser:
        for name, size in SIZES.items():
            for scheme, suffix in (("light", ""), ("dark", "-dark")):
                with tab(browser, viewport=size, color_scheme=scheme) as page:
                    ask(page, server)
                    save(page, f"{name}{suffix}")
        with tab(browser, viewport=SIZES["page"]) as page:
            decide(page, server)
            save(page, "page-decide")


if __name__ == "__main__":
    main()
