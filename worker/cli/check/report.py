"""A verdict as a line for people or of JSON, and what a template does with a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from worker.cli.console import data_console, one_line, write_json
from worker.machine import human_bytes

if TYPE_CHECKING:
    from worker.audit.verdict import FileVerdict
    from worker.gguf.header import Header
    from worker.model.tokenizer import TokenizerConfig


_STYLES = {"good": "green", "other": "dim", "bad": "bold red"}


def show(verdict: FileVerdict, *, as_json: bool) -> None:
    """Write one line to standard output at once."""
    if as_json:
        write_json(verdict)
        return
    word = "bad" if not verdict.ok else "good" if verdict.code is None else "other"
    line = Text.assemble((f"{word:<5}", _STYLES[word]), " ", one_line(verdict.file))
    line.append_text(one_line(f": {_sentence(verdict)}" if verdict.code else _what(verdict)))
    data_console().print(line, soft_wrap=True)


def summary(bad: int, good: int) -> str:
    """The last line: how many there were."""
    noun = "file" if bad + good == 1 else "files"
    return f"{bad + good:,} {noun} checked, {bad:,} bad\n"


def _sentence(verdict: FileVerdict) -> str:
    places = [f"byte {verdict.offset:,}" if verdict.offset is not None else "", verdict.field or ""]
    place = ", ".join(filter(None, places))
    text = f"{verdict.code}: {verdict.message}"
    return " ".join(filter(None, (text, f"({place})" if place else "", verdict.hint)))


def _what(verdict: FileVerdict) -> str:
    parts = [verdict.architecture or "", verdict.quant or "", human_bytes(verdict.bytes)]
    if verdict.files > 1:
        parts.append(f"{verdict.files} files")
    if verdict.weights_read:
        parts.append("weights read")
    if verdict.checksum == "right":
        parts.append("checksum right")
    template = verdict.template
    if verdict.does not in (None, "writes text"):
        parts.append(verdict.does or "")
    elif "error" in template:
        parts.append(f"no chat: {template['error']}")
    elif template.get("unknown", "nothing") != "nothing":
        parts.append(f"its chat template fails where it reaches {template['unknown']}")
    return f" ({', '.join(filter(None, parts))})"


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
