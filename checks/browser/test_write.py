"""The tab Completions: a text streams, stops, tells its probabilities, and is a program too."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from typing import Any

import pytest

from checks.browser.conftest import ANSWER, QUESTION
from checks.browser.driving import (
    Browser,
    Page,
    choices_of,
    endless,
    expect,
    heard_by,
    sent_by,
    tab,
    visit,
)
from tests.support.programs.processes import Server

HOSTILE = 'It\'s "so"\n<script>alert(1)</script> $HOME `id` \\ é\u2028😀'


def write(page: Page, prompt: str, **fields: str) -> None:
    """Fill in and send."""
    page.fill("#prompt", prompt)
    for name, value in fields.items():
        page.fill(f"#{name}", value)
    page.click("#write-send")


def test_stream(slow_server: Server, page: Page) -> None:
    """Tokens are there before the answer is, and in the end they are the text that came."""
    visit(page, slow_server, "write")
    endless(page)
    bodies, answers = sent_by(page, "/v1/completions"), heard_by(page, "/v1/completions")
    write(page, "Hello", temperature="0", max_tokens="120")
    expect(page.locator("#written span").nth(3)).to_be_attached()
    assert page.locator("#written").get_attribute("aria-busy") == "true"
    assert page.locator("#write-send").is_disabled()
    expect(page.locator("#write-status")).to_contain_text("ended by the limit · 120 tokens")
    (body,) = bodies
    assert (body["prompt"], body["temperature"], body["max_tokens"]) == ("Hello", 0, 120)
    text = "".join(choice["text"] for choice in choices_of(answers[0]))
    assert page.locator("#written").text_content() == text
    assert page.locator("#written").get_attribute("aria-busy") is None


def test_stop(slow_server: Server, page: Page) -> None:
    """Stop ends the request in the worker too."""
    visit(page, slow_server, "write")
    endless(page)
    write(page, "Hello", max_tokens="1900")
    expect(page.locator("#written span").first).to_be_attached()
    slow_server.wait_until(slots_processing=1)
    page.click("#write-stop")
    expect(page.locator("#write-status")).to_contain_text("stopped after")
    slow_server.wait_until(slots_processing=0)
    assert page.locator("#write-send").is_enabled()


def test_go_on(server: Server, page: Page) -> None:
    """What was written becomes a part of the text to go on with."""
    visit(page, server, "write")
    endless(page)
    write(page, "Hello", max_tokens="5", temperature="0")
    expect(page.locator("#write-more")).to_be_enabled()
    text = page.locator("#written").text_content() or ""
    page.click("#write-more")
    assert page.input_value("#prompt") == "Hello" + text


def shown(page: Page) -> list[tuple[str, str]]:
    """The inspector's rows: token and percentage."""
    rows = page.locator("#inspector li")
    return [
        (row.locator("code").inner_text(), row.inner_text().split("\n")[-1]) for row in rows.all()
    ]


def test_inspect(server: Server, page: Page) -> None:
    """A token under the pointer tells what the API says of it; so do the arrow keys."""
    visit(page, server, "write")
    endless(page)
    answers = heard_by(page, "/v1/completions")
    write(page, "Hello", max_tokens="8", temperature="0")
    expect(page.locator("#write-status")).to_contain_text("8 tokens")
    scores = next(each["logprobs"] for each in choices_of(answers[0]) if each["logprobs"])
    page.hover("#written span >> nth=0")
    expect(page.locator("#inspector")).to_be_visible()
    rows = shown(page)
    probability = 100 * math.exp(scores["token_logprobs"][0])
    top = page.locator("#inspector p").first.inner_text()
    assert float(top.split()[-2]) == pytest.approx(probability, abs=0.6)
    assert len(rows) == len(scores["top_logprobs"][0])
    page.mouse.move(0, 0)
    expect(page.locator("#inspector")).to_be_hidden()

    page.focus("#written")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#inspector")).to_be_visible()
    assert shown(page) == rows
    expect(page.locator("#inspected")).to_contain_text("Others:")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#written span").nth(1)).to_have_class("at")
    page.keyboard.press("Escape")
    expect(page.locator("#inspector")).to_be_hidden()


def test_what_keys_chose_stays(server: Server, page: Page) -> None:
    """A page that moves under a resting pointer, or scrolls a little, does not end it."""
    visit(page, server, "write")
    endless(page)
    write(page, "Hello", max_tokens="400", temperature="0")
    expect(page.locator("#write-status")).to_contain_text("400 tokens")
    page.set_viewport_size({"width": 360, "height": 240})  # so that there is more than can be seen
    page.focus("#written")
    page.keyboard.press("ArrowRight")
    inspector = page.locator("#inspector")
    expect(inspector).to_be_visible()
    page.locator("#prompt").dispatch_event("mouseover")
    pane = page.locator("#written")
    scroll = "(pane, by) => { pane.scrollTop += by; return new Promise(requestAnimationFrame); }"
    pane.evaluate(scroll, 4)
    expect(inspector).to_be_visible()
    pane.evaluate(scroll, 10_000)
    expect(inspector).to_be_hidden()


def test_tap(server: Server, browser: Browser) -> None:
    """On a phone a tap inspects, at the window's lower edge, and another one ends that."""
    with tab(browser, viewport={"width": 360, "height": 640}, has_touch=True) as page:
        visit(page, server)
        page.tap("#tab-write")
        endless(page)
        page.evaluate("document.getElementById('max_tokens').value = 8")
        page.fill("#prompt", "Hello")
        page.tap("#write-send")
        expect(page.locator("#write-status")).to_contain_text("8 tokens")
        page.tap("#written span >> nth=0")
        expect(page.locator("#inspector")).to_be_visible()
        box = page.locator("#inspector").bounding_box() or {}
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        assert box["y"] + box["height"] == pytest.approx(640 - 12, abs=1)
        page.tap("#name")
        expect(page.locator("#inspector")).to_be_hidden()


def test_fields(server: Server, page: Page) -> None:
    """The fields begin with the worker's defaults, and only what differs is sent."""
    visit(page, server, "write")
    for name, value in {"temperature": "1", "top_k": "0", "top_p": "1", "min_p": "0"}.items():
        expect(page.locator(f"#{name}")).to_have_value(value)
        described = page.locator(f"#{name}").get_attribute("aria-describedby")
        assert len(page.locator(f"#{described}").inner_text()) > 20
    bodies = sent_by(page, "/v1/completions")
    write(page, "a", top_k="5", seed="7", max_tokens="3", stop="x y\n\\n\n", min_p="0.1")
    expect(page.locator("#write-status")).to_contain_text("ended by")
    (body,) = bodies
    assert (body["top_k"], body["seed"], body["stop"]) == (5, 7, ["x y", "\n"])
    assert not {"temperature", "top_p", "repeat_penalty"} & set(body)
    page.click("text=Defaults")
    expect(page.locator("#top_k")).to_have_value("0")


def test_what_the_worker_refuses(server: Server, page: Page) -> None:
    """The worker's own sentence stands where the answer would."""
    visit(page, server, "write")
    write(page, "a", temperature="200")
    expect(page.locator("#write-status")).to_have_text("temperature must be from 0 to 100.")


def test_programs(speaker: Server, page: Page) -> None:
    """The request as curl and as Python gets what the page got, whatever is in its text."""
    visit(page, speaker, "write")
    page.click("#code summary")
    page.fill("#prompt", HOSTILE)
    assert body_of(page)["prompt"] == HOSTILE
    page.click("#tab-chat")
    page.fill("#message", f"{HOSTILE}\n{QUESTION}")
    page.fill("#top_k", "40")
    program = page.locator("#python").text_content() or ""
    command = page.locator("#curl").text_content() or ""
    told = body_of(page)
    bodies = sent_by(page, "/v1/chat/completions")
    page.click("#chat-send")
    expect(page.locator("#messages li.assistant > .text")).to_have_text(ANSWER)
    assert told == bodies[0]
    assert "API_KEY" not in program + command
    assert run([sys.executable, "-c", program]) == ANSWER
    streamed = run(["bash", "-c", f"{command} -s"])
    assert streamed.rstrip().endswith("data: [DONE]")
    assert '"finish_reason":"stop"' in streamed


def body_of(page: Page) -> dict[str, Any]:
    """What the shell makes of the body in the command that is shown."""
    command = page.locator("#curl").text_content() or ""
    return json.loads(run(["bash", "-c", f'curl() {{ printf %s "${{@: -1}}"; }}; {command}']))


def run(command: list[str]) -> str:
    """What a program prints, without the settings of who runs the tests."""
    env: dict[str, Any] = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
