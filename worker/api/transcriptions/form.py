"""A form to a request, and a request to the question that a chat asks about its sound."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from worker.api.intake.body import invalid_field
from worker.api.intake.bounds import tokens_of
from worker.api.intake.chat.asking import ask
from worker.api.intake.chat.chat_input import ChatInput
from worker.api.intake.facts import ModelFacts
from worker.api.intake.generation import Generation
from worker.api.intake.media_inputs import MediaInputs
from worker.api.intake.multipart import MEDIA_TYPE, parts_of
from worker.api.intake.sampling import SamplingFields, sampling_of
from worker.api.transcriptions.schemas import FORMATS, TranscriptionRequest
from worker.budget import Budget
from worker.chat.format import ChatFormat
from worker.chat.message import Message
from worker.chat.thinking import Thinking
from worker.engine.request import GenerationParams
from worker.errors import RequestError
from worker.requests.record import current

PARAM = "file"
_TRANSCRIBE = "Transcribe the audio to text. Write nothing else."
_TRANSLATE = "Translate the speech in the audio to English text. Write nothing else."
_LONGEST = 4096  # characters of a hint
# Fields that ask for what a chat model does not tell -> why.
_UNTOLD = {
    "timestamp_granularities": "the model tells no times of words",
    "timestamp_granularities[]": "the model tells no times of words",
    "include[]": "logprobs are told by /v1/chat/completions",
}
# Those that clients send once for each value.
_LISTS = frozenset({*_UNTOLD, "include", "known_speaker_names[]", "known_speaker_references[]"})
# OpenAI's own, which change nothing here.
_HARMLESS = frozenset({"chunking_strategy", "user"})


def read_form(data: bytearray, content_type: str) -> TranscriptionRequest:
    """Raises RequestError that names the field."""
    if not content_type.strip().lower().startswith(MEDIA_TYPE):
        raise RequestError(f"The body must be {MEDIA_TYPE}.", hint="Send the sound as its file.")
    parts = parts_of(data, content_type, _LISTS)
    sound = parts.pop(PARAM, b"")
    if not sound:
        raise RequestError("file is missing.", param=PARAM, hint="Send a sound: WAV, MP3 or FLAC.")
    given: dict[str, Any] = {}
    for name, value in parts.items():
        try:
            given[name] = value.decode()
        except UnicodeDecodeError:
            raise RequestError(f"{name[:100]} is no text.", param=name[:100]) from None
    for name, why in _UNTOLD.items():
        if given.pop(name, ""):
            raise RequestError(f"{name} is not offered here: {why}.", param=name)
    record, known = current(), set(TranscriptionRequest.__struct_fields__)
    if record is not None:
        record.unknown = tuple(sorted(given.keys() - known - _HARMLESS))
    told = {name: value for name, value in given.items() if value and name in known}
    try:
        body = msgspec.convert(told, TranscriptionRequest, strict=False)
    except msgspec.ValidationError as error:
        raise invalid_field(error) from None
    body.file = sound
    _check(body)
    return body


def _check(body: TranscriptionRequest) -> None:
    if body.response_format not in (None, *FORMATS):
        raise RequestError(
            f"response_format must be {' or '.join(FORMATS)}: the model tells no times of words.",
            param="response_format",
        )
    for name in ("language", "prompt"):
        if len(getattr(body, name) or "") > _LONGEST:
            raise RequestError(f"{name} has more than {_LONGEST} characters.", param=name)


def generation_of(
    body: TranscriptionRequest,
    chat: ChatFormat,
    facts: ModelFacts,
    budget: Budget,
    *,
    translates: bool,
) -> Generation:
    """Raises RequestError that names the field; blocks: the sound is read."""
    media = MediaInputs(facts.media, budget)
    if not media.takes("audio"):
        raise RequestError(
            f"A sound cannot be transcribed: {media.reads('audio')}.",
            param=PARAM,
            hint="Serve a model that hears with its projector, see --mmproj.",
        )
    mark = media.mark("audio", base64.b64encode(body.file).decode(), asked=(PARAM, PARAM))
    fields = SamplingFields(
        temperature=0.0 if body.temperature is None else body.temperature, seed=body.seed
    )
    asked = _TRANSLATE if translates else _TRANSCRIBE
    if body.language:
        asked += f" Language: {body.language}."
    if body.prompt:
        asked += f" Context: {body.prompt}"
    params = GenerationParams(
        prompt_param=PARAM,
        sampling=sampling_of(fields, facts, budget),
        max_tokens=tokens_of(
            max_completion_tokens=body.max_completion_tokens,
            max_tokens=body.max_tokens,
            default=facts.settings.n_predict,
        ),
    )
    message = Message(role="user", content=f"{mark}\n{asked}")
    talk = ChatInput(
        messages=(message,), media=media, params=params, thinking=Thinking(is_on=False)
    )
    return ask(talk, chat, facts)
