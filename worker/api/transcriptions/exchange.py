"""Words of a sound, whole or as they come."""

from __future__ import annotations

from typing import Any

from worker.api.answer.answer_state import AnswerState
from worker.api.answer.exchange import DeltaExchange
from worker.api.answer.usage import Tally, usage_of
from worker.api.intake.generation import Generation
from worker.api.transcriptions.schemas import (
    AudioUsage,
    TranscriptDelta,
    TranscriptDone,
    Transcription,
    TranscriptionRequest,
)
from worker.chat.reader import Content
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.http import sse


class TranscriptionExchange(DeltaExchange):
    """OpenAI's events `transcript.text.delta` and `transcript.text.done`; or JSON, or plain
    text."""

    def __init__(self, generation: Generation, stream: Stream, body: TranscriptionRequest) -> None:
        super().__init__(stream, streaming=bool(body.stream))
        self._said = AnswerState(generation.reader())
        self._tally = Tally(generation.num_prompt_tokens, stream.ids)
        if body.response_format == "text":
            self.whole_type = b"text/plain; charset=utf-8"

    def take(self, delta: Delta) -> list[str]:
        """The words that it adds."""
        self._tally.add(delta)
        return [event.text for event in self._said.take(delta) if isinstance(event, Content)]

    def frames_of(self, delta: Delta) -> list[bytes]:
        return [sse.frame(TranscriptDelta(text)) for text in self.take(delta) if text]

    def last_frames(self) -> list[bytes]:
        return [sse.frame(TranscriptDone(self._said.content.strip(), self._usage()))]

    def whole(self) -> Any:
        text = self._said.content.strip()
        if self.whole_type != b"application/json":
            return text
        return Transcription(text, self._usage())

    def pack(self, body: object) -> bytes:
        return f"{body}\n".encode() if isinstance(body, str) else super().pack(body)

    def _usage(self) -> AudioUsage:
        usage = usage_of(self._tally)
        return AudioUsage(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)
