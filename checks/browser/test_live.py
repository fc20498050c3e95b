"""What the worker does, live: loading, requests, many of them, its death and its return."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from checks.browser.driving import Page, endless, expect, visit
from checks.browser.test_accessibility import check
from tests.support import http
from tests.support.programs.processes import Server, serving, starting

MANY = 200


def test_loading(tiny: Path, tmp_path: Path, page: Page) -> None:
    """A page that was opened while the model loads shows how far it is, and then goes on."""
    loaded = tmp_path / "loaded"
    env = {"LOADED": str(loaded)}
    with starting("--model", tiny, "-t", "1", env=env, step_seconds=0.02) as server:
        page.goto(server.url + "/")
        expect(page.locator("#loading")).to_be_visible()
        expect(page.locator("#load-text")).to_contain_text("%")
        assert page.locator("#write-send").is_disabled()
        loaded.touch()
        expect(page.locator("#state")).to_have_text("live")
        expect(page.locator("#loading")).to_be_hidden()


def test_a_request_of_somebody_else(slow_server: Server, page: Page) -> None:
    """It is shown while it runs, and its button ends it."""
    visit(page, slow_server, "write")
    body = {"prompt": "Hello", "max_tokens": 1900, "ignore_eos": True, "stream": True}
    headers = {"x-request-id": "req-<b>mine</b>"}
    url = slow_server.url + "/v1/completions"
    with http.stream("POST", url, json=body, headers=headers) as answer:
        lines = answer.iter_lines()
        next(lines)
        row = page.locator(".request", has_text="req-<b>mine</b>")
        expect(row).to_contain_text("completions")
        expect(row).to_contain_text("of 1,900 tokens")
        expect(page.locator("#counts")).to_contain_text("1 of 4 slots busy")
        row.get_by_role("button").click()
        rest = list(lines)
    assert any('"error"' in line for line in rest)
    expect(row).to_have_count(0)
    slow_server.wait_until(slots_processing=0)


def test_the_card(server: Server, page: Page) -> None:
    """Model, cache, memory and log are those of this worker."""
    visit(page, server, "write")
    expect(page.locator("#name")).to_have_text("org/tiny")
    expect(page.locator("#card")).to_contain_text("2,048")
    expect(page.locator("#cells-free")).to_contain_text("free")
    expect(page.locator("#memory-text")).to_contain_text("MB held")
    expect(page.locator("#log")).to_contain_text("ready")


def test_many(tiny: Path, page: Page) -> None:
    """With 200 requests at once the page shows the first of them, counts the rest, and works."""
    options = ("--model", tiny, "-t", "1", "-c", "2048", "-np", "4", "--queue-size", "256")
    with serving(*options, step_seconds=0.01) as server, ThreadPoolExecutor(MANY) as pool:
        visit(page, server, "write")
        begun = threading.Barrier(MANY)

        def ask(number: int) -> int:
            begun.wait()
            return server.post({"prompt": f"{number}", "max_tokens": 8}).status_code

        answers = [pool.submit(ask, number) for number in range(MANY)]
        expect(page.locator("#more-requests")).to_contain_text("more")
        assert page.locator(".request").count() <= 50
        page.fill("#prompt", "Hello")
        page.fill("#max_tokens", "2")
        page.click("#write-send")
        expect(page.locator("#write-status")).to_contain_text("ended by")
        assert {answer.result() for answer in answers} == {200}
        expect(page.locator("#no-requests")).to_be_visible()


def test_a_worker_that_dies_and_comes_back(tiny: Path, page: Page) -> None:
    """The page says that it is gone, also in the middle of an answer, and finds the next one."""
    with serving("--model", tiny, "-t", "1", "-a", "first", step_seconds=0.02) as server:
        visit(page, server, "write")
        endless(page)
        page.evaluate("window.isSamePage = true")
        page.fill("#prompt", "Hello")
        page.fill("#max_tokens", "1900")
        page.click("#write-send")
        expect(page.locator("#written span").first).to_be_attached()
        server.process.kill()
        expect(page.locator("#state")).to_have_text("gone, trying again")
        expect(page.locator("#write-status")).to_contain_text("The worker")
        assert page.locator("#write-send").is_disabled()
    port = server.url.rpartition(":")[2]
    with serving("--model", tiny, "-t", "1", "-a", "second", "--port", port):
        expect(page.locator("#state")).to_have_text("live")
        expect(page.locator("#name")).to_have_text("second")
        expect(page.locator("#card")).to_contain_text("second")
        page.fill("#max_tokens", "3")
        page.click("#write-send")
        expect(page.locator("#write-status")).to_contain_text("3 tokens")
        assert page.evaluate("window.isSamePage")


def test_asleep(tiny: Path, page: Page) -> None:
    """A model that sleeps is told in a sentence, and the next message wakes it."""
    with serving("--model", tiny, "-t", "1") as server:
        visit(page, server, "write")
        assert http.post(server.url + "/sleep").is_success
        expect(page.locator("#state")).to_have_text("asleep")
        expect(page.locator("#notice")).to_contain_text("Your next message wakes it")
        check(page)
        page.fill("#prompt", "Hello")
        page.fill("#max_tokens", "3")
        page.click("#write-send")
        expect(page.locator("#write-status")).to_contain_text("ended by")
        expect(page.locator("#state")).to_have_text("live")
        expect(page.locator("#notice")).to_be_hidden()


def test_draining(tiny: Path, page: Page) -> None:
    """A worker that shuts down says so, and nothing can be sent to it."""
    with serving("--model", tiny, "-t", "1", step_seconds=0.05) as server:
        visit(page, server)
        url = f"{server.url}/v1/completions"
        body = {"prompt": "Hello", "max_tokens": 1900, "ignore_eos": True, "stream": True}
        with http.stream("POST", url, json=body) as answer:
            next(answer.iter_lines())
            assert http.post(server.url + "/shutdown").is_success
            expect(page.locator("#state")).to_have_text("shutting down")
            expect(page.locator("#notice")).to_contain_text("shutting down")
            assert page.locator("#chat-send").is_disabled()
