"""Chat: answers stream, thoughts are folded, the conversation goes on."""

from __future__ import annotations

from pathlib import Path

from checks.browser.conftest import ANSWER, QUESTION, SECOND, SECOND_ANSWER, THOUGHT
from checks.browser.driving import Page, expect, sent_by, visit
from tests.support.models.ggufs import write_llama
from tests.support.programs.processes import Server, serving


def test_conversation(speaker: Server, page: Page) -> None:
    """Two turns: the second request carries the first one, without its thoughts."""
    visit(page, speaker)
    bodies = sent_by(page, "/v1/chat/completions")
    page.click("#tab-chat")
    page.fill("#message", QUESTION)
    page.keyboard.press("Enter")
    expect(page.locator("#chat-status")).to_contain_text("ended by itself")
    first = page.locator("#messages li.assistant").first
    expect(first.locator("> .tokens")).to_have_text(ANSWER)
    expect(page.locator("#messages li.user").first).to_contain_text(QUESTION)
    thought = first.locator(".thought")
    expect(thought).to_be_hidden()
    first.locator("summary").click()
    expect(thought).to_have_text(THOUGHT)
    assert page.input_value("#message") == ""

    page.fill("#message", SECOND)
    page.click("#chat-send")
    expect(page.locator("#messages li.assistant > .tokens").nth(1)).to_have_text(SECOND_ANSWER)
    expect(page.locator("#chat-status")).to_contain_text("ended by itself")
    assert bodies[1]["messages"] == [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": ANSWER},
        {"role": "user", "content": SECOND},
    ]
    page.hover("#messages li.assistant >> nth=1 >> span >> nth=0")
    expect(page.locator("#inspector")).to_be_visible()

    page.click("#chat-new")
    assert page.locator("#messages li").count() == 0


def test_instructions(speaker: Server, page: Page) -> None:
    """Instructions are the first message; Shift and Enter begin a line."""
    visit(page, speaker)
    bodies = sent_by(page, "/v1/chat/completions")
    page.click("#tab-chat")
    page.click("#system-part summary")
    page.fill("#system", "Be short.")
    page.fill("#message", "One")
    page.press("#message", "Shift+Enter")
    page.keyboard.type(QUESTION)
    page.keyboard.press("Enter")
    expect(page.locator("#chat-status")).to_contain_text("ended by")
    assert bodies[0]["messages"] == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": f"One\n{QUESTION}"},
    ]


def test_without_a_template(tmp_path: Path, page: Page) -> None:
    """A file without a template says so; a message that was refused is still there to send."""
    model = write_llama(tmp_path / "plain.gguf", chat_template=None)
    with serving("--model", model, "-t", "1") as server:
        visit(page, server)
        page.click("#tab-chat")
        expect(page.locator("#no-template")).to_be_visible()
        page.fill("#message", "Hello")
        page.keyboard.press("Enter")
        expect(page.locator("#chat-status")).to_contain_text("template")
        assert page.input_value("#message") == "Hello"
        assert page.locator("#messages li").count() == 0
