"""A model that hears: the official client sends a sound, in a chat and a response."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import openai
import pytest

from tests.api.media.asked import CHAT, chat, picture, said, spelled, url_of, user, words
from tests.support.models.projectors import wav, write_hearing
from tests.support.programs.processes import Server, serving

pytestmark = pytest.mark.mtmd

SOUND = wav()
PART: Any = {"type": "input_audio", "input_audio": {"data": spelled(SOUND), "format": "wav"}}


@pytest.fixture(scope="module")
def hearing(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    model, _ = write_hearing(tmp_path_factory.mktemp("hearing"))
    with serving("--model", model, "--ctx-size", "2048") as running:
        yield running


@pytest.fixture(scope="module")
def expected(hearing: Server) -> str:
    """What a chat over plain HTTP says."""
    return said(hearing, chat(user(PART, words("what?")), ignore_eos=True))


def test_clients(hearing: Server, expected: str) -> None:
    """Both say the same, and count a vector for each 640 samples."""
    more: Any = {"ignore_eos": True, "seed": 1}
    with openai.OpenAI(base_url=hearing.url + "/v1", api_key="x", max_retries=0) as client:
        told = client.chat.completions.create(
            model="any",
            messages=[{"role": "user", "content": [PART, {"type": "text", "text": "what?"}]}],
            max_tokens=8,
            temperature=0,
            extra_body=more,
        )
        send: Any = client.responses.create
        content = [PART, {"type": "input_text", "text": "what?"}]
        response = send(
            model="any",
            input=[{"role": "user", "content": content}],
            max_output_tokens=8,
            temperature=0,
            extra_body=more,
        )
    assert told.choices[0].message.content == response.output_text == expected
    assert told.usage is not None
    assert told.usage.prompt_tokens == response.usage.input_tokens > len(SOUND) // 2 // 640


def test_other_sounds(hearing: Server, expected: str) -> None:
    """Another one has another answer, however it is sent."""
    part = {"type": "audio_url", "audio_url": {"url": url_of(SOUND, "audio/wav")}}
    assert said(hearing, chat(user(part, words("what?")), ignore_eos=True)) == expected
    part = {"type": "audio_url", "audio_url": {"url": url_of(wav(seed=1), "audio/wav")}}
    assert said(hearing, chat(user(part, words("what?")), ignore_eos=True)) != expected


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (picture(), "this model reads no image"),
        ({"type": "audio_url", "audio_url": {"url": url_of(b"hello")}}, "no known format"),
        ({"type": "audio_url", "audio_url": {"url": url_of(SOUND[:30])}}, "cannot be"),
        ({"type": "audio_url", "audio_url": {"url": url_of(wav(0))}}, "cannot be"),
    ],
)
def test_refused(hearing: Server, part: dict[str, Any], why: str) -> None:
    """A 400 that says why; the next one is heard."""
    reply = hearing.post(chat(user(part)), CHAT)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == "messages"
    assert why in reply.text
    assert said(hearing, chat(user(PART)))


def test_more_than_the_context_holds(hearing: Server) -> None:
    """Sounds that are too long together are counted: the usual error."""
    parts = [
        {"type": "input_audio", "input_audio": {"data": spelled(wav(640 * 800, seed))}}
        for seed in range(3)
    ]
    reply = hearing.post(chat(user(*parts)), CHAT)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["code"] == "context_length_exceeded"
    count = hearing.post(chat(user(*parts)), f"{CHAT}/input_tokens").json()["input_tokens"]
    assert f"{count} tokens" in error["message"]
    assert count > 2400
    assert said(hearing, chat(user(*parts[:2])))
