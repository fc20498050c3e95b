"""How a client wants the model to think, under the names of OpenAI's and llama-server's clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from worker.api.common.limits import tokens_of
from worker.chat.effort import AskedEffort, effort_of
from worker.chat.thinking import Thinking
from worker.errors import RequestError

# llama-server's words. `deepseek` tells thoughts apart, as `auto` does.
FORMATS = ("auto", "deepseek", "none")


def thinking_of(
    *,
    effort: AskedEffort,
    think: AskedEffort = None,
    variables: Mapping[str, Any] | None = None,
    asked_format: str | None = None,
    default_format: str = "auto",
    **budgets: int | None,
) -> Thinking:
    """Raises RequestError that names the field.

    effort, think   a word for no is no thinking; other words are the template's to know
    variables       the template's; `enable_thinking` counts where the effort does not say it
    asked_format    one of FORMATS; `none` leaves thoughts in the content
    default_format  the server's
    budgets         the client's name of the field -> tokens of thought at most; the first counts
    """
    if asked_format not in (None, *FORMATS):
        raise RequestError(
            f"reasoning_format must be one of {', '.join(FORMATS)}.", param="reasoning_format"
        )
    is_on, word = effort_of(effort, think)
    if is_on is None:
        is_on = effort_of((variables or {}).get("enable_thinking"))[0]
    return Thinking(
        is_on=is_on,
        effort=word,
        budget=tokens_of(default=None, **budgets),
        inline=(asked_format or default_format) == "none",
    )
