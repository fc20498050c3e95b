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


def main() -> None:
    """Write four PNG files: wide and on a phone, light and dark."""
    parser = argparse.ArgumentParser("checks.browser.pictures", description=__doc__)
    parser.add_argument("model", type=Path)
    model = parser.parse_args().model
    with serving("--model", model) as server, chromium() as browser:
        for name, size in SIZES.items():
            for scheme, suffix in (("light", ""), ("dark", "-dark")):
                with tab(browser, viewport=size, color_scheme=scheme) as page:
                    ask(page, server)
                    page.evaluate("scrollTo(0, 0)")
                    file = DOCS / f"{name}{suffix}.png"
                    page.screenshot(path=file)
                    # A third of the bytes, and no difference that an eye sees.
                    Image.open(file).convert("RGB").quantize(128).save(file, optimize=True)


if __name__ == "__main__":
    main()
