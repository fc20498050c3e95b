"""worker check: whether model files are good."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from rich.text import Text

from worker import log
from worker.audit.discovery import candidates
from worker.audit.verdict import FileVerdict, judge
from worker.chat.places import table_of
from worker.chat.template import ChatTemplate
from worker.cli.console import data_console, one_line, write_json
from worker.cli.model import model_path, with_draft_path
from worker.cli.options import settings_from
from worker.cli.progress import bar_on_stderr, of_bytes, of_items
from worker.errors import ModelFileError, RequestError, UsageError, quantity
from worker.gguf.header import Header
from worker.gguf.splits import open_header
from worker.gguf.strings import StringArray
from worker.hub.catalog import load_catalog
from worker.machine import human_bytes
from worker.model.adapter import load_adapter
from worker.model.config import load_config
from worker.model.drafts import load_draft_config
from worker.model.projector import check_projector, load_projector
from worker.model.tokenizer import TokenizerConfig

_PATIENCE_S, _PAUSE_S = 2.0, 0.1
_MAX_NAME = 40
_STYLES = {"good": "green", "other": "dim", "bad": "bold red"}


def run(arguments: argparse.Namespace) -> int:
    """Check all of them, whatever is wrong with one; 1 where one is bad."""

    settings = with_draft_path(settings_from(arguments))
    entries = ()
    if arguments.deep:
        entries = tuple(load_catalog(settings.catalog).entries.values())
    found = candidates(arguments.files, lambda text: model_path(replace(settings, model=text)))
    verdicts = [0, 0]
    total = sum(each.size for each in found) if arguments.deep else len(found)
    with contextlib.closing(CheckProgress(total, in_bytes=arguments.deep)) as progress:
        for each in found:
            progress.about(each.path.name)
            verdict = judge(
                each,
                deep=arguments.deep,
                entries=entries,
                count=progress.add if arguments.deep else _nothing,
            )
            if verdict.ok and verdict.code is None:
                config = load_config(each.path, purpose="serve")
                found_places = places(config.tokenizer, open_header(each.path))
                found_places |= _unreadable(config.tokenizer)
                verdict = replace(verdict, template=found_places)
                try:
                    for adapter in settings.lora:
                        load_adapter(adapter.file, each.path)
                    if settings.mmproj is not None:
                        check_projector(load_projector(Path(settings.mmproj)), config)
                    if settings.draft_model is not None:
                        load_draft_config(Path(settings.draft_model), config)
                except (ModelFileError, UsageError) as error:
                    verdict = replace(
                        verdict, ok=False, code=error.code, message=error.message,
                        hint=error.hint, field=getattr(error, "field", None),
                    )  # fmt: skip
            if not arguments.deep:
                progress.add(1)
            progress.close()
            show(verdict, as_json=arguments.json)
            verdicts[verdict.ok] += 1
    if not arguments.json:
        log.say(summary(*verdicts))
    return 1 if verdicts[False] else 0


def _nothing(_count: int) -> None:
    """Headers are counted by the file."""


class CheckProgress:
    """A bar on stderr that appears after 2 s; mostly all is done before anybody wonders.

    Without a terminal on stderr it never appears. `total` is in files, or in bytes.
    """

    def __init__(self, total: int, *, in_bytes: bool) -> None:
        self._total, self._in_bytes = total, in_bytes
        self._done, self._name = 0, ""
        self._due = time.monotonic() + _PATIENCE_S if sys.stderr.isatty() else float("inf")
        self._bar: Any = None

    def about(self, name: str) -> None:
        self._name = name
        self._show()

    def add(self, amount: int) -> None:
        """So many more files or bytes are done."""
        self._done += amount
        self._show()

    def close(self) -> None:
        """Take the bar off the terminal; the next step shows it again."""
        if self._bar is not None:
            self._bar.stop()

    def _show(self) -> None:
        now = time.monotonic()
        if now < self._due:
            return

        self._due = now + _PAUSE_S
        if self._bar is None:
            self._bar = _make_bar(self._total, in_bytes=self._in_bytes)
        name = one_line(self._name).plain
        shown = name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
        self._bar.update(self._bar.task_ids[0], completed=self._done, description=shown)
        self._bar.start()


def _make_bar(total: int, *, in_bytes: bool) -> Any:
    columns = of_bytes() if in_bytes else of_items()
    # What is written to stdout is data, and may go to a pipe.
    unredirected = {"redirect_stdout": False, "redirect_stderr": False}
    bar = bar_on_stderr("checking {task.description}", *columns, **unredirected)
    bar.add_task("", total=total)
    return bar


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
        parts.append(quantity(verdict.files, "file"))
    if verdict.weights_read:
        parts.append("weights read")
    if verdict.checksum == "right":
        parts.append("checksum right")
    template = verdict.template
    if verdict.does not in (None, "writes text"):
        parts.append(verdict.does or "")
        parts.append(verdict.flaw or "")
    elif "error" in template:
        parts.append(f"no chat: {template['error'].rstrip('.')}")
    elif template.get("unknown", "nothing") != "nothing":
        parts.append(f"its chat template fails where it reaches {template['unknown']}")
    parts.append(template.get("unreadable", "").rstrip("."))
    told = f" ({', '.join(filter(None, parts))})"
    return f"{told}. {verdict.newer}" if verdict.newer else told


def _unreadable(tokenizer: TokenizerConfig | None) -> dict[str, str]:
    """Why the named templates that are none are none; empty where all can be read."""
    flaws: list[str] = []
    for name, source in (tokenizer.chat_templates if tokenizer else {}).items():
        try:
            ChatTemplate(source, bos="", eos="", name=name)
        except RequestError as error:
            flaws.append(error.message)
    return {"unreadable": " ".join(flaws)} if flaws else {}


def places(tokenizer: TokenizerConfig | None, header: Header) -> dict[str, str]:
    """Place -> what is done, in words; empty where the file has no template."""

    if tokenizer is None or not tokenizer.chat_template:
        return {}
    tokens = header.keys.get("tokenizer.ggml.tokens")

    def name_of(index: int | None) -> str:
        if index is None or not isinstance(tokens, StringArray) or index >= len(tokens):
            return ""
        return str(tokens[index])

    bos, eos = name_of(tokenizer.bos_id), name_of(tokenizer.eos_id)
    return table_of(tokenizer.chat_template, bos=bos, eos=eos)
