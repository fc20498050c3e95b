"""What others wrote is text, and pages of others reach nothing."""

from __future__ import annotations

from pathlib import Path

from checks.browser.driving import Browser, Page, expect, tab, visit
from tests.support import http
from tests.support.programs.processes import Server, serving

EVIL = "<img src=x onerror='window.hacked=1'>"


def test_hostile_texts(tiny: Path, page: Page) -> None:
    """Model names, ids, prompts and the log hold markup, and none of it becomes any."""
    with serving("--model", tiny, "-t", "1", "-a", EVIL) as server:
        visit(page, server, "write")
        expect(page.locator("#name")).to_have_text(EVIL)
        expect(page.locator("#card")).to_contain_text(EVIL)
        expect(page.locator("#log")).to_contain_text(EVIL)
        page.fill("#prompt", EVIL)
        page.fill("#stop", EVIL)
        page.fill("#max_tokens", "5")
        page.click("#code summary")
        expect(page.locator("#curl")).to_contain_text("<img")
        page.click("#write-send")
        expect(page.locator("#write-status")).to_contain_text("ended by")
        page.click("#ended-part summary")
        expect(page.locator("#ended li").first).to_be_visible()
        assert page.locator("img, iframe").count() == 0
        assert page.evaluate("window.hacked") is None


def test_pages_of_other_origins(slow_server: Server, browser: Browser) -> None:
    """They can neither put the page into a frame, nor read it, nor cancel a request."""
    body = {"prompt": "Hello", "max_tokens": 300, "ignore_eos": True, "stream": True}
    headers = {"x-request-id": "victim"}
    url = slow_server.url
    script = f"""async () => {{
        const asked = async (path, options) => {{
            try {{ return (await fetch("{url}" + path, options)).status; }}
            catch (error) {{ return String(error); }}
        }};
        return [
            await asked("/v1/requests"),
            await asked("/", {{headers: {{accept: "text/html"}}}}),
            await asked("/v1/requests/victim/cancel", {{method: "POST", mode: "no-cors"}}),
        ];
    }}"""
    with http.stream("POST", f"{url}/v1/completions", json=body, headers=headers) as answer:
        lines = answer.iter_lines()
        next(lines)
        context = browser.new_context()
        page = context.new_page()
        # A page of another site, made up here; nothing else of the net is there.
        page.route(
            "http://elsewhere.example/",
            lambda route: route.fulfill(
                content_type="text/html", body=f"<iframe src='{url}/'></iframe>"
            ),
        )
        page.goto("http://elsewhere.example/")
        read, read_page, cancelled = page.evaluate(script)
        assert "TypeError" in read
        assert "TypeError" in read_page
        # The answer to a request without CORS has no status that the page could see.
        assert cancelled == 0 or "TypeError" in str(cancelled)
        frame = page.frames[-1]
        assert frame is page.main_frame or "Completions" not in frame.content()
        context.close()
        assert list(lines)[-2] == "data: [DONE]"


def test_nothing_is_asked_of_others(server: Server, browser: Browser) -> None:
    """All requests of the page go to its worker."""
    with tab(browser) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        visit(page, server, "write")
        assert len(asked) >= 5
        assert all(url.startswith((server.url, "data:")) for url in asked)
