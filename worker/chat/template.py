"""A chat template: compiled once, rendered for each conversation; and some by name."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any


class ChatTemplate:
    """The Jinja template of a model file, with the functions that such templates call.

    Jinja is imported with the first one, so that routes can name this type before.

    source      its text
    part_roles  whose content it reads only in parts: what is a text here becomes one part
    """

    def __init__(self, source: str, *, bos: str, eos: str, name: str = "chat") -> None:
        """Compile it. `bos` and `eos` are the texts of these tokens; name: for errors.

        Raises RequestError where `source` is no template.
        """
        from worker.chat.jinja.compiled import CompiledTemplate

        self.source = source
        self.part_roles: frozenset[str] = frozenset()
        self._compiled = CompiledTemplate(source, bos=bos, eos=eos, name=name)

    @property
    def unknown(self) -> tuple[str, ...]:
        """What it uses and nobody knows: filters, tests and functions, such as `filter nosuch`."""
        return self._compiled.unknown

    def in_parts(self, roles: Collection[str]) -> ChatTemplate:
        """The same with other `part_roles`."""
        made = copy.copy(self)
        made.part_roles = frozenset(roles)
        return made

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
            [self._form(message) for message in messages] if self.part_roles else messages,
            add_generation_prompt=add_generation_prompt,
            **variables,
        )

    def _form(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        content = message.get("content")
        if message["role"] not in self.part_roles or not isinstance(content, str):
            return message
        return {**message, "content": [{"type": "text", "text": content}] if content else []}


_HEADED = (
    "{{ bos_token }}{% for m in messages %}"
    "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}"
    "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
_TAGGED = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}END\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
TEMPLATES = {
    "chatml": (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "llama3": _HEADED,
    "phi3": _TAGGED.replace("END", "<|end|>"),
    "zephyr": _TAGGED.replace("END", "{{ eos_token }}"),
    "gemma": (
        "{{ bos_token }}{% for m in messages %}{% if m.role != 'system' %}"
        "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
        "{{ m.content | trim }}<end_of_turn>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
    ),
}
