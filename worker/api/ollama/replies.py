"""What Ollama's clients get: lines of a stream, or one reply of the same shape."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, UnsetType

from worker.api.common.logprobs import TokenScore
from worker.api.common.usage import Tally


class OllamaFunction(msgspec.Struct):
    """What is called; `arguments` is an object."""

    index: int
    name: str
    arguments: msgspec.Raw


class OllamaCall(msgspec.Struct):
    """A call, told once it is whole."""

    id: str
    function: OllamaFunction


class OllamaAnswer(msgspec.Struct):
    """An answer, or what one line adds to it."""

    content: str
    role: str = "assistant"
    thinking: str | UnsetType = UNSET
    tool_calls: list[OllamaCall] | UnsetType = UNSET


class AnswerLine(msgspec.Struct, kw_only=True):
    """Part of an answer. The last one is `done`, with its reason and what it cost.

    done_reason  stop, length, or load where nothing was asked; times are nanoseconds
    """

    model: str
    created_at: str
    done: bool
    done_reason: str | UnsetType = UNSET
    total_duration: int | UnsetType = UNSET
    load_duration: int | UnsetType = UNSET
    prompt_eval_count: int | UnsetType = UNSET
    prompt_eval_duration: int | UnsetType = UNSET
    eval_count: int | UnsetType = UNSET
    eval_duration: int | UnsetType = UNSET
    logprobs: list[TokenScore] | UnsetType = UNSET
    warnings: tuple[str, ...] | UnsetType = UNSET


class ChatLine(AnswerLine, kw_only=True):
    """POST /api/chat."""

    message: OllamaAnswer


class GenerateLine(AnswerLine, kw_only=True):
    """POST /api/generate."""

    response: str
    thinking: str | UnsetType = UNSET


def now() -> str:
    """RFC 3339, in UTC."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def cost_of(tally: Tally) -> dict[str, int]:
    """What the last line tells. The model is there already: loading it takes nothing."""
    return {
        "total_duration": _ns(tally.whole_s),
        "load_duration": 0,
        "prompt_eval_count": tally.num_prompt,
        "prompt_eval_duration": _ns(tally.prompt_s),
        "eval_count": tally.num_sampled,
        "eval_duration": _ns(tally.sampling_s),
    }


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
