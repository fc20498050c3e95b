"""An answer's way back to Ollama's clients: a line of JSON for each part, or all of it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET

from worker.api.answer.answer_state import AnswerState
from worker.api.answer.exchange import DeltaExchange
from worker.api.answer.logprobs import TokenScore, token_score
from worker.api.answer.shapes import OllamaErrorReply, ollama_reply
from worker.api.answer.usage import Tally
from worker.api.intake.facts import ModelFacts
from worker.api.intake.generation import Generation
from worker.api.ollama.schemas import (
    AnswerLine,
    ChatLine,
    GenerateLine,
    OllamaAnswer,
    OllamaCall,
    OllamaFunction,
    cost_of,
    now,
)
from worker.chat.message import Call
from worker.chat.reader import Content, Thought
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.http.replies import ErrorReply
from worker.http.sse import LINES_TYPE, encode


class LinePiece(msgspec.Struct):
    """What one line tells. calls: those that have ended, each with its number in the answer"""

    content: str = ""
    thought: str = ""
    calls: list[tuple[int, Call]] = []
    scores: list[TokenScore] = []

    @property
    def tells(self) -> bool:
        return bool(self.content or self.thought or self.calls or self.scores)


class OllamaExchange(DeltaExchange):
    """Lines with what each step added, and a last one that is `done`."""

    content_type: ClassVar[bytes] = LINES_TYPE
    closing: ClassVar[bytes] = b""

    def __init__(
        self, generation: Generation, stream: Stream, facts: ModelFacts, *, streaming: bool
    ) -> None:
        super().__init__(stream, streaming=streaming, delivery=generation.delivery)
        self._said = AnswerState(generation.reader())
        self._generation = generation
        self._model = generation.model
        self._pieces = facts.vocab.pieces
        self._warnings = generation.warnings
        self._wants_scores = generation.params.logprobs is not None
        self._scores: list[TokenScore] = []  # of a whole answer
        self._tally = Tally(generation.num_prompt_tokens, stream.ids)

    def pulse(self) -> bytes:
        """A line that adds nothing: clients read each as JSON, so a comment or a blank one ends
        their reading."""
        return self._frame(LinePiece(), done=False)

    @abstractmethod
    def line(self, piece: LinePiece, **fields: Any) -> AnswerLine:
        """The piece in the client's shape; fields: of `AnswerLine`."""

    def frames_of(self, delta: Delta) -> list[bytes]:
        """Its line. A call is told when it has ended."""
        piece = self.take(delta)
        return [self._frame(piece, done=False)] if piece.tells else []

    def last_frames(self) -> list[bytes]:
        return [self._frame(LinePiece(), **self._end())]

    def whole(self) -> AnswerLine:
        said = self._said
        piece = LinePiece(said.content, said.thought, list(enumerate(said.calls)), self._scores)
        return self.line(piece, **self._end(), **self._head(piece))

    def error_body(self, status: int, reply: ErrorReply) -> OllamaErrorReply:
        return ollama_reply(status, reply)

    def failure(self, error: Exception) -> bytes:
        status, reply, _ = self.error_reply(error)
        return encode(self.error_body(status, reply)) + b"\n"

    def take(self, delta: Delta) -> LinePiece:
        self._tally.add(delta)
        piece, num_calls = LinePiece(), len(self._said.calls)
        for event in self._said.take(delta):
            match event:
                case Content(text):
                    piece.content += text
                case Thought(text):
                    piece.thought += text
                case _:
                    pass
        piece.calls = list(enumerate(self._said.calls))[num_calls:]
        if self._wants_scores:
            piece.scores = [token_score(score, self._pieces) for score in delta.logprobs]
            if not self.streaming:
                self._scores += piece.scores
        return piece

    def _frame(self, piece: LinePiece, **fields: Any) -> bytes:
        return encode(self.line(piece, **fields, **self._head(piece))) + b"\n"

    def _head(self, piece: LinePiece) -> dict[str, Any]:
        return {"model": self._model, "created_at": now(), "logprobs": piece.scores or UNSET}

    def _end(self) -> dict[str, Any]:
        """A call is no reason to Ollama's clients: they look for it."""
        reason = "length" if self._said.finish_reason == "length" else "stop"
        ended = {"done": True, "done_reason": reason, "warnings": self._warnings or UNSET}
        return {**ended, "cache_trace": self._generation.cache_trace, **cost_of(self._tally)}


def _in_one_line(arguments: str) -> msgspec.Raw:
    """Models write line ends between the parts of an object, and a line end ends the reply's."""
    return msgspec.Raw(msgspec.json.format(arguments, indent=0).encode())


class OllamaChatExchange(OllamaExchange):
    """POST /api/chat."""

    def line(self, piece: LinePiece, **fields: Any) -> ChatLine:
        calls = [
            OllamaCall(call.id, OllamaFunction(n, call.name, _in_one_line(call.arguments)))
            for n, call in piece.calls
        ]
        message = OllamaAnswer(
            content=piece.content, thinking=piece.thought or UNSET, tool_calls=calls or UNSET
        )
        return ChatLine(message=message, **fields)


class GenerateExchange(OllamaExchange):
    """POST /api/generate."""

    def line(self, piece: LinePiece, **fields: Any) -> GenerateLine:
        return GenerateLine(response=piece.content, thinking=piece.thought or UNSET, **fields)
