"""Pictures that stand elsewhere: fetched from hosts that were named, read from a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.media.asked import CHAT, PICTURE, Body, chat, question, said, user, words
from tests.lifecycle.test_addresses import says, site
from tests.support.programs.processes import Server, serving
from worker.isolation import sandbox

pytestmark = pytest.mark.mtmd
SANDBOX = ["--sandbox"] if sandbox.version() >= sandbox.NEEDED else []


def named(address: str) -> Body:
    part = {"type": "image_url", "image_url": {"url": address}}
    return chat(user(part, words("what is it?")))


def error(server: Server, body: Body) -> Body:
    answer = server.post(body, CHAT)
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


def test_pictures_elsewhere(llava: Path, tmp_path: Path) -> None:
    """The same answer as to the bytes, in the sandbox too; what cannot be read is named, and a note
    where the question is not about it."""
    (tmp_path / "a.png").write_bytes(PICTURE)
    with site(a=says(200, PICTURE), b=says(200, b"text")) as port:
        url = f"http://127.0.0.1:{port}"
        options = ("--fetch-images", f"127.0.0.1:{port}", "--media-dir", tmp_path, *SANDBOX)
        with serving("--model", llava, "--ctx-size", "2048", *options) as server:
            expected = said(server, question())
            assert said(server, named(f"{url}/a")) == expected
            assert said(server, named("file://a.png")) == expected
            found = error(server, named(f"{url}/b"))
            assert found["message"].startswith("messages[0].content[0]: ")
            elsewhere = "http://127.0.0.1:9/a"
            assert elsewhere in error(server, named(elsewhere))["message"]
            past = named(elsewhere)["messages"]
            answer = {"role": "assistant", "content": "a cat"}
            said(server, chat(*past, answer, user(words("and now?"))))


def test_without_the_option(seeing: Server) -> None:
    """Nothing is fetched: the question's address is told, with the option."""
    for address in ("https://h.example/a.png", "file:///etc/passwd"):
        found = error(seeing, named(address))
        assert f"{address} is not read" in found["message"]
        assert "--fetch-images" in found["message"]
