"""The prompt field in all its shapes: text, a list of texts, token ids, a list of lists of them."""

from __future__ import annotations

from typing import Any

from worker.api.common.prompts import TextPrompt, infill_prompt, text_prompt, token_prompt
from worker.api.openai.completion_schemas import CompletionRequest
from worker.engine.request import check_length
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded
from worker.limits import SEQUENCES

PARAM = "prompt"


def prompts_of(body: CompletionRequest, loaded: Loaded) -> tuple[TextPrompt, ...]:
    """At least one Prompt. Raises RequestError that names the field."""
    given: Any = body.prompt
    if given is None:
        raise RequestError("prompt is missing.", param=PARAM, hint="Send a text.")
    if isinstance(given, str):
        return (_from_text(given, body, loaded),)
    if not given:
        raise RequestError("prompt is an empty list.", param=PARAM)
    if isinstance(given[0], int):
        check_length(len(given), loaded.backend.max_length, PARAM)  # before a million is looked at
    elif len(given) > SEQUENCES.most:
        raise RequestError(
            f"prompt has {len(given)} entries, {SEQUENCES.most} is the most.", param=PARAM
        )
    if all(isinstance(item, str) for item in given):
        return tuple(_from_text(text, body, loaded) for text in given)
    if body.suffix:
        raise RequestError("suffix needs a prompt of text.", param="suffix")
    if all(isinstance(item, int) for item in given):
        return (token_prompt(given, loaded, PARAM),)
    if all(isinstance(item, list) for item in given):
        return tuple(token_prompt(tokens, loaded, PARAM) for tokens in given)
    raise RequestError(
        "prompt mixes texts, token ids and lists.", param=PARAM, hint="Send one kind."
    )


def _from_text(text: str, body: CompletionRequest, loaded: Loaded) -> TextPrompt:
    special = body.add_special_tokens is not False
    if body.suffix:
        return infill_prompt(text, body.suffix, loaded, PARAM, add_special=special)
    return text_prompt(text, loaded, PARAM, add_special=special)
