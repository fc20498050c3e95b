"""What fields may hold, for the description of the API. The code that checks them says it better
than msgspec would, so these are told and not enforced; both take the same constants."""

from __future__ import annotations

from typing import Any

from msgspec import Meta

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
