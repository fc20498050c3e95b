"""Whether a client wants to know why its prompt was read again."""

from __future__ import annotations

import msgspec

from worker.api.intake.body import HttpRequest

HEADER = "x-explain-cache"
_WORDS = frozenset({"on", "true", "1", "yes"})


def wants_trace(body: msgspec.Struct, request: HttpRequest) -> bool:
    """By the field `return_cache_trace`, or by the header where the body does not say."""
    asked = getattr(body, "return_cache_trace", None)
    if asked is None:
        return request.headers.get(HEADER, "").strip().lower() in _WORDS
    return bool(asked)
