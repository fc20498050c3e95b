"""Pictures that nobody can read: named in the question, a note in the past."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import pytest

from tests.api.media.asked import (
    CHAT,
    PICTURE,
    Body,
    answered,
    chat,
    picture,
    question,
    said,
    spelled,
    url_of,
    user,
    words,
)
from tests.support.cases import for_each
from tests.support.models.projectors import png
from tests.support.programs.processes import Server, until

pytestmark = pytest.mark.mtmd

_HEAD = PICTURE[12:16] + (10_000).to_bytes(4) * 2 + PICTURE[24:29]
HUGE = PICTURE[:12] + _HEAD + crc32(_HEAD).to_bytes(4) + PICTURE[33:]
ASKED = {"max_tokens": 4, "temperature": 0, "seed": 1}
# What is shown -> what is said of it
BAD: dict[str, str] = {
    url_of(b"hello"): "no known format",
    url_of(PICTURE[:200]): "cannot be decoded",
    url_of(PICTURE[:60] + bytes(80)): "cannot be decoded",
    url_of(HUGE): "10000 × 10000 pixels",
    url_of(b"RIFF\x24\0\0\0WAVEfmt "): "is WAV, which is not read",
    url_of(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"): "is HEIC, which is not read",
    url_of(b"II*\0"): "is TIFF, which is not read",
    url_of(b"\n<?xml version='1.0'?><svg/>"): "is SVG, which is not read",
    url_of(b"") + "#": "not valid base64",
    "https://example.org/cat.png": "holds no bytes",
    "file:///etc/passwd": "holds no bytes",
}


def _openai(url: str) -> Body:
    return chat(user({"type": "image_url", "image_url": {"url": url}}, words("what?")))


def _responses(url: str) -> Body:
    part = {"type": "input_image", "image_url": url}
    return {"input": [user(part)], "max_output_tokens": 4}


def _anthropic(url: str) -> Body:
    source = {"type": "url", "url": url}
    if (data := url.partition("base64,"))[1]:
        source = {"type": "base64", "media_type": "image/png", "data": data[2]}
    return {"messages": [user({"type": "image", "source": source})], **ASKED}


def _ollama(url: str) -> Body:
    return {"messages": [{"role": "user", "content": "what?", "images": [url]}], "stream": False}


def _generate(url: str) -> Body:
    return {"prompt": "what?", "images": [url], "stream": False}


# Path -> its body, and the field that an error names
APIS: dict[str, tuple[Callable[[str], Body], str]] = {
    CHAT: (_openai, "messages"),
    "/v1/responses": (_responses, "input"),
    "/v1/messages": (_anthropic, "messages"),
    "/api/chat": (_ollama, "messages"),
    "/api/generate": (_generate, "images"),
}


@for_each("path", APIS)
def test_in_the_question(seeing: Server, path: str) -> None:
    """A 400 that names the field and the place; the next request is served."""
    body, field = APIS[path]
    for url, why in BAD.items():
        reply = seeing.post(body(url), path)
        assert reply.status_code == 400, reply.text
        told = reply.text
        assert why in told, (url, told)
        assert field in told
    assert seeing.post(body(url_of(PICTURE)), path).status_code == 200


@for_each("url", BAD)
def test_in_the_past(seeing: Server, url: str) -> None:
    """A session goes on: it is a note in brackets there, and the answer that of one."""
    broken = {"type": "image_url", "image_url": {"url": url}}
    then = [{"role": "assistant", "content": "I see."}, user(words("and now?"))]
    body = chat(user(words("look: "), broken), *then)
    note = f"[image: {url}]" if "://" in url else "[image]"
    template = seeing.post(body, "/apply-template").json()["prompt"]
    asked, _, rest = template.removeprefix("<|user|>").partition("<|assistant|>")
    assert asked.split() == ["look:", *note.split()]
    assert rest == "I see.<|user|>and now?<|assistant|>"
    answer = answered(seeing, body)
    expected = said(seeing, chat(user(words(asked)), *then))
    assert answer["choices"][0]["message"]["content"] == expected
    (warning,) = answer["warnings"]
    assert warning.startswith("An image is left out: ")
    assert ("is not read by this worker" if "://" in url else BAD[url]) in warning
    until(lambda: any("media are left out of a prompt" in line for line in seeing.lines))


LOOK: Body = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
USE: Body = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
TIFF = url_of(b"II*\0")
SHOT: Body = {"type": "computer_screenshot", "image_url": TIFF}
BLOCK: Body = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/tiff", "data": spelled(b"II*\0")},
}
# Path and body: what a tool shows, which cannot be read
SHOWN: dict[str, tuple[str, Body]] = {
    "chat": (
        CHAT,
        chat(
            user(words("look")),
            {"role": "assistant", "content": None, "tool_calls": [LOOK]},
            {"role": "tool", "tool_call_id": "c", "content": [picture(b"II*\0")]},
        ),
    ),
    "responses, computer": (
        "/v1/responses",
        {
            "input": [
                {"type": "computer_call", "call_id": "c", "action": {"type": "screenshot"}},
                {"type": "computer_call_output", "call_id": "c", "output": SHOT},
            ],
            "max_output_tokens": 4,
        },
    ),
    "responses, function": (
        "/v1/responses",
        {
            "input": [
                {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
                {
                    "type": "function_call_output",
                    "call_id": "c",
                    "output": [{"type": "input_image", "image_url": TIFF}],
                },
            ],
            "max_output_tokens": 4,
        },
    ),
    "messages": (
        "/v1/messages",
        {
            "messages": [
                {"role": "user", "content": "look"},
                {"role": "assistant", "content": [USE]},
                user({"type": "tool_result", "tool_use_id": "c", "content": [BLOCK]}),
            ],
            **ASKED,
        },
    ),
    "ollama": (
        "/api/chat",
        {
            "messages": [
                {"role": "user", "content": "look"},
                {"role": "tool", "tool_name": "look", "content": "here", "images": [TIFF]},
            ],
            "stream": False,
            "options": {"num_predict": 4},
        },
    ),
}


@for_each("name", SHOWN)
def test_in_a_tools_result(seeing: Server, name: str) -> None:
    """What a tool shows and cannot be read is a note, which a warning tells with the reason."""
    path, body = SHOWN[name]
    reply = seeing.post(body, path)
    assert reply.status_code == 200, reply.text
    assert reply.json()["warnings"] == [
        "An image is left out: The picture is TIFF, which is not read."
    ]


@for_each("name", SHOWN)
def test_in_a_text_models_history(name: str, server: Server) -> None:
    """A model that reads text says that it saw nothing."""
    path, body = SHOWN[name]
    reply = server.post(body, path)
    assert reply.status_code == 200, reply.text
    assert reply.json()["warnings"] == ["An image is left out: this model reads text only."]


def test_a_prompts_text(seeing: Server) -> None:
    """It has a note where a picture stands."""
    told = seeing.post(question(), "/apply-template").json()["prompt"]
    assert told == "<|user|>[image]what is it?<|assistant|>"


@pytest.mark.parametrize("kind", ["audio", "video"])
def test_what_it_does_not_take(seeing: Server, kind: str) -> None:
    """A model that sees does not hear."""
    part = {"type": f"input_{kind}", f"input_{kind}": {"data": spelled(b"RIFF"), "format": "wav"}}
    reply = seeing.post(chat(user(part)), CHAT)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "messages"
    assert f"this model reads no {kind}" in reply.text


def test_raw(seeing: Server) -> None:
    """Without a template there is no place for a picture."""
    body = {"prompt": "a", "images": [spelled(PICTURE)], "raw": True}
    reply = seeing.post(body, "/api/generate")
    assert reply.status_code == 400
    assert "chat template" in reply.text


def test_too_many(seeing: Server) -> None:
    """65 different ones; the same one counts once."""
    many = [picture(png(7, 7, seed)) for seed in range(65)]
    reply = seeing.post(chat(user(*many, words("?"))), CHAT)
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == "A request may show 64 images and audio files."
    assert seeing.post(chat(user(*[many[0]] * 65)), CHAT).status_code == 200


def test_a_prompt_that_is_too_long(seeing: Server) -> None:
    """The usual error; with truncation old turns are left out, and so are their pictures."""
    old = [user(picture(), words("so? " * 300)), {"role": "assistant", "content": "I see."}] * 3
    body = chat(*old, user(picture(), words("and now?")))
    reply = seeing.post(body, CHAT)
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "context_length_exceeded"
    last = said(seeing, chat(user(picture(), words("and now?"))))
    assert said(seeing, {**body, "truncation": "auto"}) == last
