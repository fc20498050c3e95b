"""Which priority a request has: by its body, by its headers, and by its key."""

from __future__ import annotations

import msgspec

from worker.api.intake.body import HttpRequest
from worker.errors import RequestError
from worker.limits import BATCH_PRIORITY, PRIORITY
from worker.requests.record import current

HEADER = "x-priority"
# OpenAI's words, and Anthropic's.
TIERS = ("auto", "default", "flex", "priority", "scale")
ANTHROPIC_TIERS = ("auto", "standard_only")
# `auto` says nothing.
_PRIORITIES = {"default": 0, "scale": 0, "standard_only": 0, "flex": 10, "priority": -10}


def priority_of(body: msgspec.Struct, request: HttpRequest) -> int:
    """The field `priority`, or `service_tier`, or the header; no lower than the key may have. Lines
    of batches have their own.

    Raises RequestError that names what is wrong.
    """
    asked, record = named_priority(body), current()
    if record is not None and record.account.is_batch:
        return BATCH_PRIORITY
    if asked is None:
        text = request.headers.get(HEADER)
        asked = 0 if text is None else _in_bounds(_integer(text), "X-Priority")
    lowest = None if record is None else record.account.priority
    return asked if lowest is None else max(asked, lowest)


def named_priority(body: msgspec.Struct) -> int | None:
    """What a body says, or Ollama's options in it. Raises RequestError that names the field."""
    for fields in (body, getattr(body, "options", None)):
        tier, tiers = getattr(fields, "service_tier", None), getattr(fields, "tiers", TIERS)
        if tier is not None and tier not in tiers:
            raise RequestError(
                f"service_tier must be {', '.join(tiers[:-1])} or {tiers[-1]}.",
                param="service_tier",
            )
        priority = getattr(fields, "priority", None)
        if priority is not None:
            return _in_bounds(priority, "priority")
        if tier in _PRIORITIES:
            return _PRIORITIES[tier]
    return None


def _integer(text: str) -> int | None:
    digits = text.strip().removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else None


def _in_bounds(value: int | None, param: str) -> int:
    if value is None or not -PRIORITY.most <= value <= PRIORITY.most:
        raise RequestError(
            f"{param} must be a whole number from {-PRIORITY.most} to {PRIORITY.most}.", param=param
        )
    return value


def tier_of(priority: int) -> str:
    """The service tier of that priority, in OpenAI's words."""
    return "priority" if priority < 0 else "flex" if priority else "default"


def anthropic_tier_of(priority: int) -> str:
    """The same in Anthropic's."""
    return "priority" if priority < 0 else "batch" if priority else "standard"
