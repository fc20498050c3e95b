"""Fields that bound an answer, under the names that OpenAI's and llama-server's clients use."""

from __future__ import annotations

from collections.abc import Sequence

from worker.api.common.bounds import ANY, LEAST_COUNT
from worker.errors import RequestError
from worker.limits import LOGPROBS, STOP, STOPS

TRUNCATIONS = ("auto", "disabled")


def tokens_of(*, default: int | None, **given: int | None) -> int | None:
    """The first limit that is given, or the default; None is no limit.

    given: the client's name for it -> its value. Raises RequestError that names the field, also one
    that does not count.
    """
    values = {name: value for name, value in given.items() if value is not None}
    for name, value in values.items():
        if value < LEAST_COUNT:
            raise RequestError(f"{name} must be 0 or more, or {ANY} for no limit.", param=name)
    first = next(iter(values.values()), default)
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


def stops_of(stop: str | Sequence[str | None] | None, param: str = "stop") -> tuple[str, ...]:
    """One text or several, those that say something. Raises RequestError that names the client's
    field `param`."""
    stops = tuple(text for text in ([stop] if isinstance(stop, str) else stop or ()) if text)
    if len(stops) > STOPS.most or any(len(text) > STOP.most for text in stops):
        raise RequestError(
            f"{param} must be at most {STOPS.most} texts of at most {STOP.most} characters.",
            param=param,
        )
    return stops
