"""The official clients show a picture, and read the same answer."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import anthropic
import ollama
import openai
import pytest

from tests.api.media.asked import (
    PICTURE,
    ROWS,
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
from tests.support.models.projectors import png
from tests.support.programs.processes import Server

TEXT = "what is it?"
GREEDY: Any = {"temperature": 0, "seed": 1, "ignore_eos": True}
OPTIONS: Any = {"num_predict": 8, **GREEDY}
BLOCK: Any = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": spelled(PICTURE)},
}

pytestmark = pytest.mark.mtmd


@pytest.fixture(scope="module")
def expected(seeing: Server) -> str:
    """What a chat over plain HTTP says."""
    return said(seeing, question(ignore_eos=True))


@pytest.fixture(scope="module")
def openai_client(seeing: Server) -> Generator[openai.OpenAI]:
    with openai.OpenAI(base_url=seeing.url + "/v1", api_key="x", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def anthropic_client(seeing: Server) -> Generator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=seeing.url, api_key="x", max_retries=0) as client:
        yield client


def test_another_picture_has_another_answer(seeing: Server, expected: str) -> None:
    assert said(seeing, question(png(seed=1), ignore_eos=True)) != expected
    assert said(seeing, chat(user(words(TEXT)), ignore_eos=True)) != expected


def test_openai_chat(openai_client: openai.OpenAI, expected: str) -> None:
    """Whole and as a stream; the picture's vectors count as tokens of the prompt."""
    send: Any = openai_client.chat.completions.create
    asked: Any = {"model": "any", "max_tokens": 8, "extra_body": {"ignore_eos": True}}
    asked |= {"temperature": 0, "seed": 1}
    content = [picture(), words(TEXT)]
    whole = send(messages=[{"role": "user", "content": content}], **asked)
    assert whole.choices[0].message.content == expected
    plain = send(messages=[{"role": "user", "content": TEXT}], **asked)
    # Behind the picture a text begins with a token for the space that this vocabulary adds.
    more = whole.usage.prompt_tokens - plain.usage.prompt_tokens
    assert ROWS <= more <= ROWS + 1
    parts = send(messages=[{"role": "user", "content": content}], stream=True, **asked)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == expected


def test_responses(openai_client: openai.OpenAI, expected: str) -> None:
    send: Any = openai_client.responses.create
    shown = {"type": "input_image", "image_url": url_of(PICTURE), "detail": "auto"}
    response = send(
        model="any",
        input=[{"role": "user", "content": [shown, {"type": "input_text", "text": TEXT}]}],
        max_output_tokens=8,
        temperature=0,
        extra_body={"ignore_eos": True, "seed": 1},
    )
    assert response.output_text == expected
    assert response.usage.input_tokens > ROWS


def test_anthropic(anthropic_client: anthropic.Anthropic, expected: str) -> None:
    messages: Any = [{"role": "user", "content": [BLOCK, {"type": "text", "text": TEXT}]}]
    told = anthropic_client.messages.create(
        model="any", max_tokens=8, messages=messages, extra_body=GREEDY
    )
    assert [block.text for block in told.content if block.type == "text"] == [expected]
    count = anthropic_client.messages.count_tokens(model="any", messages=messages)
    usage = told.usage
    assert count.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_ollama(seeing: Server, expected: str) -> None:
    """Chat and generate, the picture as base64."""
    client: Any = ollama.Client(host=seeing.url)
    asked: Any = [{"role": "user", "content": TEXT, "images": [PICTURE]}]
    assert client.chat("any", asked, options=OPTIONS).message.content == expected
    told = client.generate("any", TEXT, images=[PICTURE], options=OPTIONS)
    assert told.response == expected
    assert client.generate("any", "", images=[PICTURE], options=OPTIONS).response


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": url_of(PICTURE)},
        {"type": "image_url", "image_url": {"url": spelled(PICTURE)}},
        {"type": "image_url", "image_url": url_of(PICTURE, "image/jpeg")},
        {"type": "image", "image": url_of(PICTURE)},
        {"type": "image", "data": spelled(PICTURE), "mimeType": "image/png"},
        BLOCK,
    ],
)
def test_other_forms(seeing: Server, expected: str, part: Body) -> None:
    """Of other APIs, in a chat."""
    assert said(seeing, chat(user(part, words(TEXT)), ignore_eos=True)) == expected


def test_history(seeing: Server) -> None:
    """A picture of an earlier turn is still seen, from the cells of that turn."""
    asked = words("what do you see here, and what not? " * 8)
    then = [{"role": "assistant", "content": "nothing"}, user(words("and now?"))]
    said(seeing, chat(user(picture(), asked)))
    reply = answered(seeing, chat(user(picture(), asked), *then))
    assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] > ROWS
    unseen = answered(seeing, chat(user(asked), *then))
    assert unseen["choices"][0]["message"]["content"] != reply["choices"][0]["message"]["content"]


def test_a_tools_result(seeing: Server, anthropic_client: anthropic.Anthropic) -> None:
    """What a tool shows is seen, as a chat and Anthropic have it."""
    call: Any = {
        "id": "call-0",
        "type": "function",
        "function": {"name": "look", "arguments": "{}"},
    }
    start = [user(words("look")), {"role": "assistant", "content": None, "tool_calls": [call]}]

    def shown(data: bytes) -> str:
        result = {"role": "tool", "tool_call_id": "call-0", "content": [picture(data)]}
        return said(seeing, chat(*start, result, ignore_eos=True))

    assert shown(PICTURE) == shown(PICTURE) != shown(png(seed=1))
    use: Any = {"type": "tool_use", "id": "call-0", "name": "look", "input": {}}
    result: Any = {"type": "tool_result", "tool_use_id": "call-0", "content": [BLOCK]}
    told = anthropic_client.messages.create(
        model="any",
        max_tokens=8,
        messages=[
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ],
        extra_body=GREEDY,
    )
    assert [block.text for block in told.content if block.type == "text"] == [shown(PICTURE)]
