"""Pictures as clients of many libraries write them."""

from __future__ import annotations

from tests.api.media.asked import (
    CHAT,
    PICTURE,
    ROWS,
    Body,
    answered,
    chat,
    spelled,
    url_of,
    user,
    words,
)
from tests.api.media.test_refused import LOOK
from tests.support.cases import for_each
from tests.support.programs.processes import Server

DATA, URL = spelled(PICTURE), url_of(PICTURE)
FORMS: dict[str, Body] = {
    "image/data": {"type": "image", "data": DATA, "mimeType": "image/png"},
    "image/data with more": {"type": "image", "data": DATA, "source_type": "base64", "width": 28},
    "image/base64": {"type": "image", "base64": DATA, "mime_type": "image/png", "extras": {}},
    "image/url": {"type": "image", "source_type": "url", "url": URL},
    "image/image": {"type": "image", "image": URL, "mediaType": "image/png"},
    "image-data": {"type": "image-data", "data": DATA, "mediaType": "image/png"},
    "image_url with more": {"type": "image_url", "image_url": {"url": URL}, "uuid": "abc"},
    "media": {"type": "media", "data": DATA, "mediaType": "image/png"},
    "file": {"type": "file", "file": {"file_data": URL}},
    "input_file": {"type": "input_file", "file_data": URL},
    "file/data": {"type": "file", "data": DATA, "mediaType": "image/png"},
    "resource": {"type": "resource", "resource": {"mimeType": "image/png", "blob": DATA}},
    "document": {
        "type": "document",
        "source": {"type": "base64", "media_type": "image/png", "data": DATA},
    },
    "inlineData": {"inlineData": {"mimeType": "image/png", "data": DATA}},
    "source/bytes": {"image": {"format": "png", "source": {"bytes": DATA}}},
    "without a type": {"image_url": {"url": URL}},
}


def asked(part: Body) -> list[Body]:
    """It is in the question, and a tool shows it."""
    call: Body = {"role": "assistant", "content": None, "tool_calls": [LOOK]}
    result: Body = {"role": "tool", "tool_call_id": "c", "content": [words("so:"), part]}
    return [chat(user(words("so:"), part)), chat(user(words("look")), call, result)]


@for_each("form", FORMS)
def test_a_part_that_holds_a_picture(seeing: Server, form: str) -> None:
    """The model sees it, wherever its bytes stand and whatever else the part says."""
    for body, same in zip(asked(FORMS[form]), asked(FORMS["image/data"]), strict=True):
        answer, expected = answered(seeing, body), answered(seeing, same)
        assert answer["usage"]["prompt_tokens"] == expected["usage"]["prompt_tokens"] > ROWS
        assert answer["choices"][0]["message"] == expected["choices"][0]["message"]
        assert "warnings" not in answer


def test_what_else_a_part_says(seeing: Server) -> None:
    """A part that holds a picture loses none of its texts."""
    part = {"type": "image", "data": DATA, "mimeType": "image/png", "seen": "a cat"}
    told = seeing.post(asked(part)[1], "/apply-template").json()["prompt"]
    assert '[more: {"seen":"a cat"}]' in told


SHOT: Body = {"at": 3, "screenshot": URL}


@for_each("path", [CHAT, "/v1/responses"])
def test_a_picture_among_other_data(seeing: Server, path: str) -> None:
    """What is read as text holds no bytes of pictures, and a warning tells that one is left out."""
    ran: Body = {"type": "code_interpreter_call", "id": "c", "code": "plot()"}
    ran |= {"outputs": [{"type": "image", "url": URL}]}
    said: Body = {"input": [ran, user(words("so?"))], "max_output_tokens": 4}
    reply = seeing.post(asked(SHOT)[1] if path == CHAT else said, path)
    assert reply.status_code == 200, reply.text
    why = "it stands in a field that is read as text."
    assert reply.json()["warnings"] == [f"An image is left out: {why}"]


@for_each("path", ["/api/chat", "/api/generate"])
def test_an_empty_picture(seeing: Server, path: str) -> None:
    """A picture of no bytes in a list is one that cannot be read, and not none."""
    told: Body = {"content": "so?", "images": [""]}
    body: Body = {"messages": [{"role": "user", **told}]} if path == "/api/chat" else told
    reply = seeing.post({"prompt": "so?", **body}, path)
    assert reply.status_code == 400
    assert "images[0] is of type image and holds no bytes" in reply.text
