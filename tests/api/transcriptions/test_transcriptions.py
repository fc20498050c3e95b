"""/v1/audio with a model that hears, by OpenAI's own client."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import openai
import pytest

from tests.support import http
from tests.support.models.projectors import wav, write_hearing
from tests.support.programs.processes import Server, serving

pytestmark = pytest.mark.mtmd

SOUND = wav()
PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations")


@pytest.fixture(scope="module")
def hearing(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    model, _ = write_hearing(tmp_path_factory.mktemp("transcribing"))
    with serving("--model", model, "--ctx-size", "2048", "-n", "12") as running:
        yield running


def _post(server: Server, path: str = PATHS[0], sound: bytes = SOUND, **fields: Any) -> Any:
    files = {"file": ("a.wav", sound, "audio/wav")}
    return http.post(server.url + path, files=files, data=fields)


def test_the_official_client(hearing: Server) -> None:
    """Whole as JSON and as text, and streamed: the same words, the usage with them."""
    with openai.OpenAI(base_url=hearing.url + "/v1", api_key="x", max_retries=0) as client:
        create: Any = client.audio.transcriptions.create
        whole = create(model="any", file=("a.wav", SOUND))
        text = create(model="any", file=("a.wav", SOUND), response_format="text")
        events = list(create(model="any", file=("a.wav", SOUND), stream=True))
        translate: Any = client.audio.translations.create  # pyright: ignore[reportDeprecated]
        english = translate(model="any", file=("a.wav", SOUND))
    assert whole.text
    assert whole.usage.input_tokens > len(SOUND) // 2 // 640
    assert text.strip() == whole.text
    assert [each.type for each in events[:-1]] == ["transcript.text.delta"] * (len(events) - 1)
    assert events[-1].type == "transcript.text.done"
    assert events[-1].text == "".join(each.delta for each in events[:-1]).strip() == whole.text
    assert events[-1].usage.output_tokens == whole.usage.output_tokens <= 12
    assert isinstance(english.text, str)


def test_fields(hearing: Server) -> None:
    """A language, a prompt and another sound reach the model; --predict and the client's own limit
    bound the words; a field that is not known is named."""
    told = _post(hearing).json()
    asked = [
        _post(hearing, language="de"), _post(hearing, prompt="Anna"),
        _post(hearing, sound=wav(seed=1)), _post(hearing, path=PATHS[1]),
    ]  # fmt: skip
    counts = {each.json()["usage"]["input_tokens"] for each in asked[:2]}
    assert min(counts) > told["usage"]["input_tokens"]
    assert {told["text"]} != {each.json()["text"] for each in asked}
    assert _post(hearing, max_tokens="3").json()["usage"]["output_tokens"] <= 3
    plain = _post(hearing, response_format="text")
    assert plain.headers["content-type"].startswith("text/plain")
    assert json.loads(_post(hearing, hotwords="x").headers["x-unknown-fields"]) == ["hotwords"]
    assert _post(hearing, path="/audio/transcriptions").json()["text"] == told["text"]


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"response_format": "srt"}, "response_format", "no times"),
        ({"response_format": "verbose_json"}, "response_format", "no times"),
        ({"timestamp_granularities[]": "word"}, "timestamp_granularities[]", "no times"),
        ({"timestamp_granularities[]": ["word", "segment"]}, "timestamp_granularities[]", "times"),
        ({"include[]": ["logprobs", "logprobs"]}, "include[]", "not offered here"),
        ({"language": ["en", "de"]}, None, "two parts are named language"),
        ({"temperature": "hot"}, "temperature", "temperature"),
        ({"stream": "perhaps"}, "stream", "stream"),
        ({"max_tokens": "-5"}, "max_tokens", "max_tokens"),
        ({"language": "x" * 5000}, "language", "characters"),
    ],
)
def test_refused(hearing: Server, fields: dict[str, Any], param: str | None, words: str) -> None:
    """400 with the field, at both paths."""
    for path in PATHS:
        answer = _post(hearing, path, **fields)
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["param"] == param
        assert words in error["message"]


def test_what_is_no_sound(hearing: Server, server: Server) -> None:
    """No form, no file, another format and a model that does not hear: 400 in one sentence."""
    assert "multipart" in hearing.post({}, PATHS[0]).json()["error"]["message"]
    missing = http.post(hearing.url + PATHS[0], files={"other": b"x"}).json()["error"]
    assert missing["param"] == "file"
    for sound in (b"hello", SOUND[:30], b"OggS" + bytes(100)):
        answer = _post(hearing, sound=sound)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "file"
    deaf = _post(server)
    assert deaf.status_code == 400
    assert "reads text only" in deaf.json()["error"]["message"]
