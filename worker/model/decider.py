"""What a file says of a model that was trained for decisions."""

from __future__ import annotations

import math

from worker.gguf.fields import Fields

# Families that read the logits of labels, as any model is read. Others need heads.
LABEL_READERS = frozenset({"openjev", "lev", "nimble", "pplx-decider", "lfm2-d1"})
# The file's chat template that a decision's question is written by.
DECISION_TEMPLATE = "systemone"
_TEMPERATURE = ".decision.temperature."


def decision_temperatures(fields: Fields) -> dict[str, float]:
    """By type of question, such as `choice`, or by type and number of options: `choice.3_5`.

    Converters write them as texts. Raises ModelFileError for what is no positive number.
    """
    begin = fields.full(_TEMPERATURE)
    found: dict[str, float] = {}
    for key, value in fields.header.keys.items():
        if not key.startswith(begin):
            continue
        try:
            temperature = float(value) if isinstance(value, str | int | float) else math.nan
        except (ValueError, OverflowError):
            temperature = math.nan
        if not 0 < temperature < math.inf:  # NaN is neither
            fields.bad(key, str(value)[:40], "a number above 0")
        found[key.removeprefix(begin)] = temperature
    return found
