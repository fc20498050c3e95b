"""What a file's chat template does with each place of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.gguf.header import Header
    from worker.model.tokenizer import TokenizerConfig


def places(tokenizer: TokenizerConfig | None, header: Header) -> dict[str, str]:
    """Place -> what is done, in words; empty where the file has no template."""
    from worker.chat.places import table_of
    from worker.gguf.strings import StringArray

    if tokenizer is None or not tokenizer.chat_template:
        return {}
    tokens = header.keys.get("tokenizer.ggml.tokens")

    def named(index: int | None) -> str:
        if index is None or not isinstance(tokens, StringArray) or index >= len(tokens):
            return ""
        return str(tokens[index])

    bos, eos = named(tokenizer.bos_id), named(tokenizer.eos_id)
    return table_of(tokenizer.chat_template, bos=bos, eos=eos)
