"""What clients send as a form, and what they get. Null means not given."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from worker.api.intake.bounds import between, count_from, one_of

FORMATS = ("json", "text")


class TranscriptionRequest(msgspec.Struct, kw_only=True):
    """POST /v1/audio/transcriptions and /v1/audio/translations, multipart/form-data.

    file             audio: WAV, MP3 or FLAC
    model            an adapter's name, or anything
    language         that is spoken, such as en
    prompt           what it is about, such as names that occur in it
    response_format  json or text
    temperature      0 where it is not given
    seed             the same gives the same words, above a temperature of 0
    stream           true: events, one for each token
    max_tokens, max_completion_tokens
                     tokens of the words at most
    """

    shows_media: ClassVar[bool] = True

    file: Annotated[bytes, Meta(extra_json_schema={"format": "binary"})] = b""
    model: str | None = None
    language: str | None = None
    prompt: str | None = None
    response_format: Annotated[str | None, one_of(*FORMATS)] = None
    temperature: Annotated[float | None, between(0, 100)] = None
    seed: int | None = None
    stream: bool | None = None
    max_tokens: Annotated[int | None, count_from(0)] = None
    max_completion_tokens: Annotated[int | None, count_from(0)] = None


class AudioUsage(msgspec.Struct):
    """Tokens of the sound and of the words."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    type: str = "tokens"


class Transcription(msgspec.Struct):
    """The words."""

    text: str
    usage: AudioUsage


class TranscriptDelta(msgspec.Struct):
    """What one event adds to them."""

    delta: str
    type: str = "transcript.text.delta"


class TranscriptDone(msgspec.Struct):
    """All of them, at the end."""

    text: str
    usage: AudioUsage
    type: str = "transcript.text.done"
