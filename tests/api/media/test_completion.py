"""llama-server's /completion with pictures: `prompt_string` and `multimodal_data`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.media.asked import CHAT, PICTURE, ROWS, chat, picture, said, spelled, user, words
from tests.support.models.projectors import png, wav
from tests.support.programs.processes import Server

pytestmark = pytest.mark.mtmd


def written(server: Server, text: str, *media: object) -> Any:
    prompt = {"prompt_string": text, "multimodal_data": list(media)}
    fields = {"n_predict": 8, "temperature": 0, "seed": 1}
    return server.post({"prompt": prompt, **fields}, "/completion")


def test_a_picture(seeing: Server) -> None:
    """It stands at the marker, as in a chat's prompt."""
    body = chat(user(picture(), words("what?")))
    marked = seeing.post(body, "/apply-template").json()["prompt"].replace("[image]", "<__media__>")
    reply = written(seeing, marked, spelled(PICTURE)).json()
    assert reply["content"] == said(seeing, body)
    assert reply["tokens_evaluated"] > ROWS
    assert reply["prompt"] == marked.replace("<__media__>", "[image]")
    other = written(seeing, marked, spelled(png(seed=1))).json()
    assert other["content"] != reply["content"]


def test_what_does_not_fit(seeing: Server, server: Server) -> None:
    """A 400 that says what is wrong with it."""
    data = spelled(PICTURE)
    for text, media, why in (
        ("a", [data], "0 times <__media__>, and multimodal_data holds 1"),
        ("<__media__>", [data, data], "1 times <__media__>, and multimodal_data holds 2"),
        ("<__media__>", [5], "multimodal_data[0] is no base64"),
        ("<__media__>", ["#"], "base64"),
        ("<__media__>", [spelled(b"II*\0")], "is TIFF, which is not read"),
        ("<__media__>", [spelled(wav())], "multimodal_data[0]: this model reads no audio"),
        ("<__media__>", ["https://h.example/a.png"], "multimodal_data[0]: is no base64 of a file"),
    ):
        reply = written(seeing, text, *media)
        assert reply.status_code == 400, reply.text
        assert why in reply.json()["error"]["message"]
    reply = written(server, "<__media__>", data)
    assert "this model reads text only" in reply.json()["error"]["message"]
    assert seeing.post(chat(user(words("?"))), CHAT).status_code == 200
