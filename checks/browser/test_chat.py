"""Chat: answers stream as Markdown, reasoning is folded, a conversation branches and stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from checks.browser.conftest import ANSWER, QUESTION, SECOND, SECOND_ANSWER, THOUGHT
from checks.browser.driving import Browser, Page, expect, sent_by, tab, visit
from checks.browser.test_accessibility import check
from tests.support.models.ggufs import write_llama
from tests.support.programs.processes import Server, serving

CHAT = "**/v1/chat/completions"


def ask(page: Page, text: str, ends: str = "ended by itself") -> None:
    """Send a message and wait for its answer."""
    page.fill("#message", text)
    page.keyboard.press("Enter")
    expect(page.locator("#chat-status")).to_contain_text(ends)


def answers(page: Page) -> list[str]:
    """The texts of all answers that are shown."""
    return page.locator("#messages li.assistant > .text").all_text_contents()


def recite(
    page: Page, *deltas: dict[str, Any], finish: str = "stop", trace: dict[str, Any] | None = None
) -> None:
    """Let each chat answer be these deltas, and have this `cache_trace`."""
    usage = {"prompt_tokens": 20, "completion_tokens": 4}
    usage["prompt_tokens_details"] = {"cached_tokens": 5}  # type: ignore[assignment]
    frames: list[dict[str, Any]] = [{"choices": [{"delta": each}]} for each in deltas]
    timings = {"predicted_n": 4, "predicted_per_second": 12.34}
    frames.append({"choices": [{"delta": {}, "finish_reason": finish}]})
    frames.append({"choices": [], "usage": usage, "timings": timings, "cache_trace": trace})
    body = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames)
    page.route(CHAT, lambda route: route.fulfill(content_type="text/event-stream", body=body))


def test_conversation(speaker: Server, page: Page) -> None:
    """Two turns: the second request carries the first one, without its reasoning."""
    visit(page, speaker)
    bodies = sent_by(page, "/v1/chat/completions")
    expect(page.locator("#chat")).to_be_visible()
    ask(page, QUESTION)
    first = page.locator("#messages li.assistant").first
    expect(first.locator("> .text")).to_have_text(ANSWER)
    expect(page.locator("#messages li.user").first).to_contain_text(QUESTION)
    thought = first.locator(".thought")
    expect(thought).to_be_hidden()
    first.locator("summary").click()
    expect(thought).to_have_text(THOUGHT)
    expect(first.locator(".stats")).to_contain_text("tok/s")
    assert page.input_value("#message") == ""

    ask(page, SECOND)
    assert answers(page) == [ANSWER, SECOND_ANSWER]
    expect(page.locator(".stats").nth(1)).to_contain_text("cached (")
    assert bodies[1]["messages"] == [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": ANSWER},
        {"role": "user", "content": SECOND},
    ]
    assert not {"max_tokens", "logprobs", "temperature"} & bodies[1].keys()

    page.click("#chat-new")
    assert page.locator("#messages li").count() == 0


def test_why_a_prompt_was_read_again(speaker: Server, page: Page) -> None:
    """It stands under the answer, with how many tokens that cost; the page asks for it."""
    visit(page, speaker)
    why = "A date or a time changed in message 0 (system)."
    trace = {"reason": "date_changed", "why": why, "prompt_tokens": 900, "cached_tokens": 780}
    recite(page, {"content": "So."}, trace=trace)
    bodies = sent_by(page, "/v1/chat/completions")
    ask(page, QUESTION)
    stats = page.locator("#messages li.assistant .stats")
    expect(stats).to_contain_text(f"120 of 900 prompt tokens processed: {why}")
    assert bodies[0]["return_cache_trace"] is True


def test_branches(speaker: Server, page: Page) -> None:
    """Regenerate and Edit begin another version; each version keeps what followed it."""
    visit(page, speaker)
    bodies = sent_by(page, "/v1/chat/completions")
    ask(page, QUESTION)
    ask(page, SECOND)
    page.locator("li.assistant").first.get_by_role("button", name="Regenerate").click()
    expect(page.locator("li.assistant .versions")).to_contain_text("2 of 2")
    assert bodies[2]["messages"] == [{"role": "user", "content": QUESTION}]
    expect(page.locator("#messages > li")).to_have_count(2)
    page.get_by_role("button", name="Previous version").click()
    assert answers(page) == [ANSWER, SECOND_ANSWER]

    page.locator("li.user").first.get_by_role("button", name="Edit").click()
    field = page.get_by_label("Edit your message")
    expect(field).to_be_focused()
    assert field.input_value() == QUESTION
    field.press("Escape")
    expect(page.locator("li.user").first).to_contain_text(QUESTION)
    page.locator("li.user").first.get_by_role("button", name="Edit").click()
    field.fill(SECOND)
    field.press("Enter")
    expect(page.locator("li.user .versions")).to_contain_text("2 of 2")
    expect(page.locator("#messages li.assistant > .text")).to_have_text(SECOND_ANSWER)
    assert bodies[3]["messages"] == [{"role": "user", "content": SECOND}]
    page.get_by_role("button", name="Previous version").click()
    assert answers(page) == [ANSWER, SECOND_ANSWER]


def test_probabilities(speaker: Server, page: Page) -> None:
    """If they are wanted, an answer is tokens that tell what else was likely."""
    visit(page, speaker)
    page.click("#sampling summary")
    page.check("#probabilities")
    ask(page, QUESTION)
    page.hover("#messages li.assistant > .tokens > span >> nth=0")
    expect(page.locator("#inspector")).to_be_visible()


def test_instructions(speaker: Server, page: Page) -> None:
    """The system prompt is the first message; Shift and Enter begin a line."""
    visit(page, speaker)
    bodies = sent_by(page, "/v1/chat/completions")
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


MARKDOWN = """# Title

Some **bold**, *italic* and `a < b`, a [link](https://example.com/) and &lt;tag&gt;.

- one
- two
  1. deep

| a | b |
|---|--:|
| 1 | 2 |

> quoted

```python
print("<b>hi</b>")
```
"""


def test_markdown(speaker: Server, page: Page, browser: Browser) -> None:
    """An answer's Markdown is elements; its code can be copied as it is."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit(page, speaker)
    pieces = [{"content": MARKDOWN[at : at + 7]} for at in range(0, len(MARKDOWN), 7)]
    recite(page, *pieces)
    ask(page, QUESTION)
    text = page.locator("#messages li.assistant > .text")
    expect(text.locator("h3")).to_have_text("Title")
    expect(text.locator("strong")).to_have_text("bold")
    expect(text.locator("p code")).to_have_text("a < b")
    expect(text.locator("> p").first).to_contain_text("<tag>")
    expect(text.locator("a")).to_have_attribute("rel", "noopener noreferrer nofollow")
    expect(text.locator("li")).to_have_count(3)
    expect(text.locator("td").nth(1)).to_have_text("2")
    expect(text.locator("blockquote")).to_have_text("quoted")
    expect(text.locator("pre")).to_have_text('print("<b>hi</b>")')
    text.get_by_role("button", name="Copy").click()
    assert page.evaluate("navigator.clipboard.readText()") == 'print("<b>hi</b>")'
    page.locator("li.assistant .turn").get_by_role("button", name="Copy").click()
    assert page.evaluate("navigator.clipboard.readText()") == MARKDOWN
    expect(page.locator(".stats")).to_contain_text("12.3 tok/s")
    expect(page.locator(".stats")).to_contain_text("5 cached (25 %)")
    check(page)


@pytest.mark.parametrize(
    "hostile",
    [
        "<img src=x onerror='window.hacked=1'>",
        "<script>window.hacked=1</script>",
        "<svg/onload=window.hacked=1>\n\n<iframe srcdoc='<script>parent.hacked=1</script>'>",
        "[a](javascript:window.hacked=1) [b](JaVaScRiPt&colon;window.hacked=1)",
        "[c](java\tscript:window.hacked=1) <javascript:window.hacked=1> [d](data:text/html,x)",
        "![e](javascript:window.hacked=1) ![f](https://example.com/pixel.png)",
        "[g]: javascript:window.hacked=1\n\n[g] [h](&#106;avascript:window.hacked=1)",
        "```<img/src/onerror=window.hacked=1>\n</code></pre><script>window.hacked=1</script>\n```",
        ">" * 20_000 + " deep",
        "[" * 20_000,
        "*" * 20_000 + "_" * 20_000,
        "| a |\n|---|\n" + "| <b onclick=window.hacked=1>x</b> |\n" * 20,
    ],
)
def test_hostile_markdown(speaker: Server, page: Page, hostile: str) -> None:
    """No answer runs a script, loads anything, links to anything but the web, or hangs the page."""
    visit(page, speaker)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    recite(page, {"content": hostile})
    ask(page, QUESTION)
    text = page.locator("#messages li.assistant > .text")
    assert text.locator("img, script, iframe, svg, b, object, style, form").count() == 0
    links = text.locator("a")
    for at in range(links.count()):
        link = links.nth(at)
        assert (link.get_attribute("href") or "").startswith("https://")
        link.click(trial=True)
    assert page.evaluate("window.hacked") is None
    assert all(url.startswith(speaker.url) for url in asked)


def test_tools(speaker: Server, page: Page) -> None:
    """A call is shown; the result that is entered goes back to the model."""
    visit(page, speaker)
    bodies = sent_by(page, "/v1/chat/completions")
    page.click("#system-part summary")
    page.fill("#tools", "[{")
    expect(page.locator("#tools-error")).to_be_visible()
    page.fill("#message", QUESTION)
    page.press("#message", "Enter")
    expect(page.locator("#chat-status")).to_contain_text("not JSON")
    tool = {"type": "function", "function": {"name": "weather", "parameters": {}}}
    page.fill("#tools", json.dumps([tool]))
    expect(page.locator("#tools-error")).to_be_hidden()
    function = {"name": "weather", "arguments": '{"city":'}
    recite(
        page,
        {"tool_calls": [{"index": 0, "id": "call_1", "function": function}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"Oslo"}'}}]},
        finish="tool_calls",
    )
    ask(page, QUESTION, ends="asks for a tool")
    expect(page.locator(".calls")).to_contain_text("weather")
    expect(page.locator(".calls pre")).to_contain_text('"city": "Oslo"')
    check(page)
    page.unroute(CHAT)
    recite(page, {"content": "Cold."})
    page.get_by_label("Result of weather").fill("3 degrees")
    page.get_by_role("button", name="Send result").click()
    expect(page.locator("#chat-status")).to_contain_text("ended by itself")
    assert answers(page)[-1] == "Cold."
    assert bodies[-1]["tools"] == [tool]
    call = {"id": "call_1", "type": "function"}
    call["function"] = {"name": "weather", "arguments": '{"city":"Oslo"}'}  # type: ignore[assignment]
    assert bodies[-1]["messages"] == [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "3 degrees", "tool_call_id": "call_1"},
    ]


def test_conversations_stay_only_if_allowed(speaker: Server, browser: Browser) -> None:
    """Nothing is stored at first; then a conversation survives a reload, and can be deleted."""
    with tab(browser) as page:
        visit(page, speaker)
        ask(page, QUESTION)
        page.reload()
        expect(page.locator("#state")).to_have_text("live")
        page.click("#history-part summary")
        expect(page.locator("#no-conversations")).to_be_visible()
        page.check("#keep")
        expect(page.locator("#keep-status")).to_contain_text("stay in this browser")
        ask(page, QUESTION)
        ask(page, SECOND)
        page.reload()
        expect(page.locator("#state")).to_have_text("live")
        page.click("#history-part summary")
        page.click("#conversations .title")
        expect(page.locator("#messages > li")).to_have_count(4)
        assert answers(page) == [ANSWER, SECOND_ANSWER]
        expect(page.locator(".stats").first).to_contain_text("tok/s")
        check(page)
        with page.expect_download() as download:
            page.click("#export")
        (exported,) = json.loads(Path(download.value.path()).read_text())["conversations"]
        assert [each["content"] for each in exported["messages"]][::2] == [QUESTION, SECOND]
        page.get_by_role("button", name=f"Delete {QUESTION}").click()
        expect(page.locator("#messages > li")).to_have_count(0)
        page.reload()
        expect(page.locator("#keep")).to_be_checked()
        page.click("#history-part summary")
        expect(page.locator("#no-conversations")).to_be_visible()
        ask(page, QUESTION)
        page.uncheck("#keep")
        expect(page.locator("#keep-status")).to_contain_text("deleted")
        page.reload()
        expect(page.locator("#state")).to_have_text("live")
        assert not page.is_checked("#keep")
        assert page.locator("#conversations li").count() == 0


def test_without_a_template(tmp_path: Path, page: Page) -> None:
    """A file without a template opens on Completions; a refused message is there to send."""
    model = write_llama(tmp_path / "plain.gguf", chat_template=None)
    with serving("--model", model, "-t", "1") as server:
        visit(page, server)
        expect(page.locator("#write")).to_be_visible()
        page.click("#tab-chat")
        expect(page.locator("#no-template")).to_be_visible()
        page.fill("#message", "Hello")
        page.keyboard.press("Enter")
        expect(page.locator("#chat-status")).to_contain_text("template")
        assert page.input_value("#message") == "Hello"
        assert page.locator("#messages li").count() == 0


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("queue_full", "out of room"),
        ("draining", "shutting down"),
        ("context_length_exceeded", "Out of room"),
    ],
)
def test_refusals_in_plain_words(speaker: Server, page: Page, code: str, words: str) -> None:
    """Out of room and shutting down are told without terms of the API."""
    visit(page, speaker)
    refusal = {"error": {"message": "x", "code": code}}
    page.route(CHAT, lambda route: route.fulfill(status=503, json=refusal))
    page.fill("#message", QUESTION)
    page.press("#message", "Enter")
    expect(page.locator("#chat-status")).to_contain_text(words)
    assert page.input_value("#message") == QUESTION
