"""Images and audio: chosen, pasted or dropped, they are sent and a part of the conversation."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from checks.browser.driving import Page, expect, sent_by, visit
from checks.browser.test_accessibility import check
from tests.support.models.projectors import png, write_llava
from tests.support.programs.processes import Server, serving

BRINGS = """([kind, base64]) => {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const files = new DataTransfer();
  files.items.add(new File([bytes], "a.png", { type: "image/png" }));
  const at = document.getElementById("message");
  const options = { bubbles: true, cancelable: true };
  at.dispatchEvent(kind === "paste"
    ? new ClipboardEvent("paste", { ...options, clipboardData: files })
    : new DragEvent("drop", { ...options, dataTransfer: files }));
}"""


@pytest.mark.mtmd
def test_images(tmp_path: Path, page: Page) -> None:
    """One is removed, one is sent before the words; the next turn holds it still."""
    model, _ = write_llava(tmp_path)
    picture = base64.b64encode(png()).decode()
    with serving("--model", model, "-c", "2048", "-t", "1") as server:
        visit(page, server)
        bodies = sent_by(page, "/v1/chat/completions")
        expect(page.locator("#media-hint")).to_be_visible()
        page.evaluate("document.getElementById('max_tokens').value = 3")
        for kind in ("paste", "drop"):
            page.evaluate(BRINGS, [kind, picture])
        expect(page.locator("#media img")).to_have_count(2)
        check(page)
        page.click("#media button >> nth=0")
        expect(page.locator("#media img")).to_have_count(1)
        for text in ("What is it?", "And now?"):
            page.fill("#message", text)
            page.keyboard.press("Enter")
            expect(page.locator("#chat-status")).to_contain_text("ended by")
        expect(page.locator("#messages img")).to_have_count(1)
        expect(page.locator("#media img")).to_have_count(0)
    content = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
        {"type": "text", "text": "What is it?"},
    ]
    assert bodies[0]["messages"] == [{"role": "user", "content": content}]
    first, _, second = bodies[1]["messages"]
    assert first["content"] == content
    assert second["content"] == "And now?"


def test_the_button(speaker: Server, page: Page) -> None:
    """It offers what the model takes; by keyboard too, files are added, removed and sent."""
    props = "**/props"

    def hears(route: Any) -> None:
        told = route.fetch().json()
        route.fulfill(json={**told, "modalities": {"vision": True, "audio": True, "video": False}})

    visit(page, speaker)
    expect(page.locator("#attach")).to_be_hidden()
    page.route(props, hears)
    page.reload()
    expect(page.locator("#attach")).to_be_visible()
    expect(page.locator("#attach")).to_have_text("Add images or audio")
    page.route("**/v1/chat/completions", lambda route: route.abort())
    bodies = sent_by(page, "/v1/chat/completions")
    with page.expect_file_chooser() as chooser:
        page.locator("#attach").press("Enter")
    wave = {"name": "a.wav", "mimeType": "audio/wav", "buffer": b"RIFFsound"}
    image = {"name": "a.png", "mimeType": "image/png", "buffer": png()}
    chooser.value.set_files([wave, image])
    expect(page.locator("#media li")).to_have_count(2)
    expect(page.locator("#media")).to_contain_text("WAV")
    check(page)
    page.get_by_role("button", name="Remove image 2").press("Enter")
    expect(page.locator("#media li")).to_have_count(1)
    page.fill("#message", "What is said?")
    page.press("#message", "Enter")
    expect(page.locator("#chat-status")).to_contain_text("gone")
    sound = {"data": base64.b64encode(b"RIFFsound").decode(), "format": "wav"}
    assert bodies[0]["messages"][0]["content"] == [
        {"type": "input_audio", "input_audio": sound},
        {"type": "text", "text": "What is said?"},
    ]
    expect(page.locator("#media li")).to_have_count(1)
