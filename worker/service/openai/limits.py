"""Fields that bound an answer, under the names that OpenAI's and llama-server's clients use."""

from __future__ import annotations

from worker.errors import RequestError

_UNBOUNDED = -1  # llama-server's way to say "until the model or the context ends"


def tokens_of(*, default: int | None, least: int = 0, **given: int | None) -> int | None:
    """The first limit that is given, or the default; None is no limit.

    given: the client's name for it -> its value. Raises RequestError that names the field.
    """
    for name, value in given.items():
        if value is None:
            continue
        if value == _UNBOUNDED:
            return None
        if value < 0:
            raise RequestError(f"{name} must not be negative.", param=name)
        if value < least:
            raise RequestError(f"{name} must be at least {least}.", param=name)
        return value
    return default


def truncates(truncation: str | None) -> bool:
    """Whether a conversation that is too long is to be shortened. Raises RequestError."""
    if truncation not in (None, "auto", "disabled"):
        raise RequestError("truncation must be auto or disabled.", param="truncation")
    return truncation == "auto"


def stops_of(stop: str | list[str] | None) -> tuple[str, ...]:
    """One text or several."""
    return (stop,) if isinstance(stop, str) else tuple(stop or ())
