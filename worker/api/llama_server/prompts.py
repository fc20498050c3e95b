"""The prompt of /completion in all its shapes."""

from __future__ import annotations

from typing import Any, cast

from worker.api.common.prompts import TextPrompt, text_prompt, to_be_continued, token_prompt
from worker.api.llama_server.schemas import PromptObject, WritingRequest
from worker.engine.request import check_length
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded
from worker.limits import SEQUENCES

PARAM = "prompt"


def prompts_of(body: WritingRequest, loaded: Loaded) -> tuple[TextPrompt, ...]:
    """At least one. Raises RequestError."""
    given: Any = body.prompt
    if given is None or given == []:
        raise RequestError("prompt is missing.", param=PARAM, hint="Send a text.")
    if not isinstance(given, list):
        return (_one(given, loaded),)
    entries = cast("list[Any]", given)
    if any(_is_id(entry) for entry in entries):
        return (_one(entries, loaded),)
    if len(entries) > SEQUENCES.most:
        raise RequestError(
            f"prompt has {len(entries)} entries, {SEQUENCES.most} is the most.", param=PARAM
        )
    return tuple(_one(entry, loaded) for entry in entries)


def _one(given: Any, loaded: Loaded) -> TextPrompt:
    """One prompt: a text, an object with one, or token ids and texts in a row."""
    if isinstance(given, PromptObject):
        given = {"prompt_string": given.prompt_string, "multimodal_data": given.multimodal_data}
    if isinstance(given, dict):
        fields = cast("dict[str, Any]", given)
        if fields.get("multimodal_data"):
            raise RequestError(
                "prompt has pictures or sound, and this worker reads text.", param=PARAM
            )
        given = fields.get("prompt_string")
    if isinstance(given, str):
        return text_prompt(given, loaded, PARAM)
    if not isinstance(given, list):
        raise RequestError("prompt must be texts and token ids.", param=PARAM)
    row = cast("list[Any]", given)
    check_length(len(row), loaded.backend.max_length, PARAM)  # before a million is looked at
    tokens: list[int] = []
    for place, entry in enumerate(row):
        if _is_id(entry):
            tokens.append(entry)
        elif isinstance(entry, str):
            tokens += to_be_continued(entry, loaded, PARAM, add_special=place == 0)
        else:
            raise RequestError("prompt must be texts and token ids.", param=PARAM)
    return token_prompt(tokens, loaded, PARAM)


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
