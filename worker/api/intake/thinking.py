"""How a client wants the model to think, under the names that clients of all APIs use."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Annotated, Any, ClassVar

import msgspec

from worker.api.intake.bounds import count_from, tokens_of
from worker.api.intake.sampling import SamplingFields
from worker.chat.thinking import EffortWord, Thinking, effort_of
from worker.errors import RequestError
from worker.settings import Settings

# llama-server's words. `deepseek` tells thoughts apart, as `auto` does.
FORMATS = ("auto", "deepseek", "none")
# Anthropic's words for a model that thinks, beside those for yes and no of `effort_of`.
_THINKS = ("adaptive", "between_tools")
_SWITCHES = ("enable_thinking", "thinking", "reasoning_effort")


_NOTHING_SAID = Settings()


class ReasoningOptions(msgspec.Struct, omit_defaults=True):
    """How the model is to think, where OpenAI's Responses API and OpenRouter have it.

    enabled     whether at all
    max_tokens  of thought
    summary     auto, concise or detailed; null: no summary
    """

    effort: EffortWord = None
    enabled: EffortWord = None
    max_tokens: Annotated[int | None, count_from(0)] = None
    summary: str | None = None
    generate_summary: str | None = None


class ThinkingConfig(msgspec.Struct):
    """enabled, adaptive, between_tools or disabled, or another word for yes or no.

    enabled  another place for yes or no, where there is no type
    display  `omitted`: thoughts are not shown
    """

    type: EffortWord = None
    enabled: EffortWord = None
    budget_tokens: Annotated[int | None, count_from(0)] = None
    display: str | None = None


class ChatFields(SamplingFields, kw_only=True):
    """What every API of conversations reads beside sampling; null: not given.

    reasoning, reasoning_effort, think, thinking, enable_thinking
                          whether the model thinks, or how much: none, or a word that its template
                          knows; a word for no in one of them means no
    thinking_budget       tokens of thought at most
    chat_template_kwargs  variables for the template, such as enable_thinking
    """

    shows_media: ClassVar[bool] = True

    reasoning: ReasoningOptions | EffortWord = None
    reasoning_effort: EffortWord = None
    think: EffortWord = None
    thinking: ThinkingConfig | EffortWord = None
    enable_thinking: EffortWord = None
    thinking_budget: Annotated[int | None, count_from(0)] = None
    chat_template_kwargs: dict[str, Any] | None = None


# What the functions below look at; mostly a body says nothing of it.
_said_in = attrgetter(
    "reasoning", "reasoning_effort", "think", "thinking", "enable_thinking", "thinking_budget",
    "chat_template_kwargs", "output_config",
)  # fmt: skip
_NOTHING = _said_in(ChatFields())


def thinking_of(
    *bodies: ChatFields,
    settings: Settings = _NOTHING_SAID,
    asked_format: str | None = None,
    default_format: str = "auto",
    **budgets: int | None,
) -> Thinking:
    """The first word for yes or no counts, and the first one for how much. Raises RequestError.

    settings        what counts where the bodies say nothing
    asked_format    one of FORMATS; `none` leaves thoughts in the content
    default_format  the server's
    budgets         the client's name of the field -> tokens of thought at most; the first counts
    """
    if asked_format not in (None, *FORMATS):
        raise RequestError(
            f"reasoning_format must be one of {', '.join(FORMATS)}.", param="reasoning_format"
        )
    is_on = effort = None
    bodies = tuple(body for body in bodies if _said_in(body) != _NOTHING)
    for body in bodies:
        for word in _words(body):
            if word is not None:
                is_said, how = effort_of(word)
                is_on = is_said if is_on is None else is_on
                effort = how if effort is None else effort
    budget = None
    for counts in (budgets, *map(_budgets, bodies)):
        if {*counts.values()} - {None}:
            given = tokens_of(default=None, **counts)
            budget = given if budget is None else budget
    if budget is None and (settings.reasoning_budget or is_on is not True):
        budget = settings.reasoning_budget  # 0 of the operator's: none, unless one is asked for
    says_nothing = is_on is None and effort is None
    return Thinking(
        is_on=settings.thinks if says_nothing else is_on,
        effort=settings.reasoning_effort if says_nothing else effort,
        budget=budget,
        inline=(asked_format or default_format) == "none",
    )


def _budgets(body: ChatFields) -> dict[str, int | None]:
    """Field -> tokens of thought at most."""
    found: dict[str, int | None] = {"thinking_budget": body.thinking_budget}
    if isinstance(body.thinking, ThinkingConfig):
        found["thinking"] = body.thinking.budget_tokens
    if isinstance(body.reasoning, ReasoningOptions):
        found["reasoning"] = body.reasoning.max_tokens
    variable = (body.chat_template_kwargs or {}).get("thinking_budget")
    if isinstance(variable, int) and not isinstance(variable, bool):
        found["chat_template_kwargs"] = variable
    return found


def _words(body: ChatFields) -> Iterator[EffortWord]:
    """All that say something of it, by their weight."""
    if isinstance(body.reasoning, ReasoningOptions):
        yield body.reasoning.effort
        yield body.reasoning.enabled
    else:
        yield body.reasoning
    yield body.reasoning_effort
    yield body.think
    config = body.output_config and msgspec.to_builtins(body.output_config)
    if isinstance(config, dict):
        yield config.get("effort")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    yield _switch(body.thinking)
    yield body.enable_thinking
    variables = body.chat_template_kwargs or {}
    for name in _SWITCHES:
        if name in variables:
            yield effort_of(variables[name])[0]


def _switch(asked: ThinkingConfig | EffortWord) -> EffortWord:
    """Raises RequestError for a type that is none."""
    if not isinstance(asked, ThinkingConfig):
        return True if asked in _THINKS else asked
    is_on, word = effort_of(asked.type, asked.enabled)
    if is_on is None and word is None:
        return None
    if is_on is None and word not in _THINKS:
        known = ", ".join(("enabled", "disabled", *_THINKS))
        raise RequestError(f"thinking.type must be one of {known}.", param="thinking")
    return is_on is not False
