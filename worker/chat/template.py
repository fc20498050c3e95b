"""A chat template: compiled once, rendered for each conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ChatTemplate:
    """The Jinja template of a model file, with the functions that such templates call.

    Jinja is imported with the first one, so that routes can name this type before.

    source  its text
    """

    def __init__(self, source: str, *, bos: str, eos: str) -> None:
        """Compile it. `bos` and `eos` are the texts of these tokens.

        Raises RequestError where `source` is no template.
        """
        from worker.chat.compiled import CompiledTemplate

        self.source = source
        self._compiled = CompiledTemplate(source, bos=bos, eos=eos)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt. Raises RequestError with the template's reason."""
        return self._compiled.render(
            messages, add_generation_prompt=add_generation_prompt, **variables
        )
