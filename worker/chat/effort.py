"""How much a client wants the model to think, in whatever word it says so."""

from __future__ import annotations

# A client's words, as a text, a number or a truth.
AskedEffort = str | float | bool | None

_NO = frozenset({"false", "0", "0.0", "off", "none", "no", "disabled", "disable"})
_YES = frozenset({"true", "1", "1.0", "on", "yes", "enabled", "enable"})


def effort_of(*given: AskedEffort) -> tuple[bool | None, str | None]:
    """(whether it thinks at all, how much), by the first that says something; None: the template's
    own way. A word for no means no, in any case of letters; templates know `none`."""
    for value in given:
        word = "" if value is None else str(value).strip().lower()
        if word in _NO:
            return False, word if word == "none" else None
        if word in _YES:
            return True, None
        if word:
            return None, word
    return None, None
