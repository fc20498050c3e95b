"""Texts of a command line or of standard input, which may hold any bytes."""

from __future__ import annotations

from worker.errors import UsageError


def utf8_text(given: str | bytes, what: str) -> str:
    """The text as UTF-8. Raises UsageError, which names it as `what`, if it is something else.

    given  bytes, or text in which Python spells bytes that it could not decode as surrogates
    """
    try:
        raw = given if isinstance(given, bytes) else given.encode("utf-8", "surrogateescape")
        return raw.decode()
    except UnicodeDecodeError as error:
        reason = f"The {what} is not UTF-8 at byte {error.start}."
        raise UsageError(reason, hint="Convert it with iconv.") from None
