"""Which dialect a template speaks."""

from __future__ import annotations

from worker.chat.dialects import (
    functionary,
    gemma,
    keyed,
    mistral,
    muse,
    named,
    nested,
    pythonic,
    tagged,
    wrapped,
    xtml,
)
from worker.chat.dialects.harmony import CHANNEL, MESSAGE, Harmony
from worker.chat.dialects.muse import Muse
from worker.chat.dialects.sample import CallSample
from worker.chat.reading.answer import Syntax

# Those whose answers are messages with a header each.
Headed = Harmony | Muse
Dialect = Headed | Syntax
# What a template that knows no calls is asked to write.
PLAIN = wrapped.WrappedCalls("<tool_call>", "</tool_call>")


def dialect_of(sample: CallSample) -> Dialect | None:
    """By what the template shows of a call; None: it knows none."""
    if all(text in sample.source for text in (CHANNEL, MESSAGE, "functions.")):
        return Harmony()
    if made := muse.found(sample):
        return made
    families = (gemma, mistral, functionary, pythonic, xtml, nested, tagged, keyed, named, wrapped)
    return next((made for family in families if (made := family.found(sample))), None)
