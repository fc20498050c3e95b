"""What fields may hold, for the description of the API. The code that checks them says it better
than msgspec would, so these are told and not enforced; both take the same constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Meta

from worker.errors import RequestError
from worker.limits import LOGPROBS, STOP, STOPS

ANY = -1  # llama-server's way to say "until the model or the context ends"
LEAST_COUNT = -2  # and Ollama's, "until the context is full"


def between(low: float, high: float) -> Meta:
    """A number from `low` to `high`."""
    return Meta(extra_json_schema={"minimum": low, "maximum": high})


def at_least(low: int) -> Meta:
    """A number from `low` on."""
    return Meta(extra_json_schema={"minimum": low})


def count_from(low: int) -> Meta:
    """A number from `low` on, or one that says that there is no limit."""
    between_them: dict[str, Any] = {"not": {"enum": list(range(ANY + 1, low))}} if low > 0 else {}
    return Meta(extra_json_schema={"minimum": LEAST_COUNT, **between_them})


def one_of(*words: str) -> Meta:
    """One of these texts, or null."""
    return Meta(extra_json_schema={"enum": [*words, None]})


def characters(most: int, *, least: int = 0, pattern: str | None = None) -> Meta:
    limits: dict[str, Any] = {"maxLength": most}
    limits |= {"minLength": least} if least else {}
    return Meta(extra_json_schema=limits | ({"pattern": f"^{pattern}$"} if pattern else {}))


def items(most: int, *, least: int = 0, of: dict[str, Any] | None = None) -> Meta:
    """A list of so many. of: JSON schema of each"""
    limits: dict[str, Any] = {"maxItems": most}
    limits |= {"minItems": least} if least else {}
    return Meta(extra_json_schema=limits | ({"items": of} if of else {}))


def texts(most: int, chars: int, *, least: int = 0) -> Meta:
    """A text, or a list of so many, of so many characters each."""
    each: dict[str, Any] = {"maxLength": chars} | ({"minLength": least} if least else {})
    return Meta(extra_json_schema={"maxItems": most, "items": each, **each})


TRUNCATIONS = ("auto", "disabled")


def tokens_of(*, default: int | None, **given: int | None) -> int | None:
    """The first limit that is given, or the default; None is no limit.

    given: the client's name for it -> its value. Raises RequestError that names the field, also one
    that does not count.
    """
    first: int | None = None
    for name, value in given.items():
        if value is None:
            continue
        if value < LEAST_COUNT:
            raise RequestError(f"{name} must be 0 or more, or {ANY} for no limit.", param=name)
        first = value if first is None else first
    first = default if first is None else first
    return None if first is not None and first < 0 else first


def truncates(truncation: str | None) -> bool:
    """Whether a conversation that is too long is to be shortened. Raises RequestError."""
    if truncation not in (None, *TRUNCATIONS):
        raise RequestError(f"truncation must be {' or '.join(TRUNCATIONS)}.", param="truncation")
    return truncation == "auto"


def check_alternatives(**given: int | None) -> None:
    """Raise RequestError that names the client's field of the likeliest alternatives."""
    for name, count in given.items():
        if not 0 <= (count or 0) <= LOGPROBS.most:
            raise RequestError(f"{name} must be from 0 to {LOGPROBS.most}.", param=name)


def prompt_logprobs_of(count: int | None, *, stream: bool | None) -> int | None:
    """Alternatives for each prompt token, as asked for. Raises RequestError."""
    if count is None:
        return None
    check_alternatives(prompt_logprobs=count)
    if stream:
        raise RequestError("prompt_logprobs cannot be streamed.", param="prompt_logprobs")
    return count


def stops_of(stop: str | Sequence[str | None] | None, param: str = "stop") -> tuple[str, ...]:
    """One text or several, those that say something. Raises RequestError that names the client's
    field `param`."""
    if not stop:
        return ()
    stops = tuple(text for text in ([stop] if isinstance(stop, str) else stop) if text)
    if len(stops) > STOPS.most or any(len(text) > STOP.most for text in stops):
        raise RequestError(
            f"{param} must be at most {STOPS.most} texts of at most {STOP.most} characters.",
            param=param,
        )
    return stops
