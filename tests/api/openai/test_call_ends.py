"""An answer may end after any call: white space behind it promises no other one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.chats import TOOLS, streamed, whole
from tests.support.models.reciting import Recital
from tests.support.models.speaking import FAMILIES, Arguments, Speaker
from tests.support.programs.processes import Server, serving, side_by_side

SPACES = (" ", "\n", "\n\n", " \r\n\t")
SEA: tuple[str, Arguments] = ("sea", {})
SKY: tuple[str, Arguments] = ("sky", {"at": "Rome"})
CHOICES = ("auto", "required")
# Whose calls follow each other without a list around them.
SPELLED = ("hermes", "qwen3", "qwen3-coder", "mistral-names", "functionary-3.1", "functionary-3.2")


def spelled(speaker: Speaker) -> Speaker:
    """The family with a vocabulary in which the marks of calls are texts."""
    marks = "".join((*speaker.around, speaker.write(*SKY)))
    controls = tuple(text for text in speaker.controls if text not in marks)
    shown = tuple(text for text in speaker.shown if text not in marks)
    return replace(speaker, controls=controls, shown=shown)


def ended(speaker: Speaker, space: str, cue: str) -> Recital:
    """One call, white space, the end."""
    text = speaker.answer("Rain?", "", [SEA]).removesuffix(speaker.call_end)
    return speaker.recital(text + space + speaker.call_end, cue)


def joined(speaker: Speaker, cue: str) -> Recital:
    """Two calls; one token holds the end of the first, white space and what opens the second."""
    first, both = (
        speaker.answer("Rain?", "", calls).removesuffix(speaker.around[2] + speaker.call_end)
        for calls in ([SEA], [SEA, SKY])
    )
    start, end = len(first) - 1, len(first) + len(speaker.around[1]) + 3
    rest = both[end:] + speaker.around[2]
    return Recital([*speaker.cut(both[:start], 0), both[start:end], *speaker.cut(rest, 0)], cue)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_may_be_the_last_one(family: str, tmp_path: Path) -> None:
    """Behind white space too, whether calls may or must be made, whole and streamed."""
    check_all(FAMILIES[family], tmp_path)


@pytest.mark.parametrize("family", SPELLED)
def test_calls_whose_marks_are_texts(family: str, tmp_path: Path) -> None:
    """A token may hold the end of one call and the beginning of the next."""
    speaker = spelled(FAMILIES[family])
    check_all(speaker, tmp_path, joined(speaker, "case two"))


def check_all(speaker: Speaker, folder: Path, *more: Recital) -> None:
    cues = {f"case {number}": space for number, space in enumerate(SPACES)}
    recitals = [ended(speaker, space, cue) for cue, space in cues.items()]
    model = speaker.write_model(folder / "model.gguf", [*recitals, *more])
    cases = [(cue, [SEA]) for cue in cues] + [(recital.cue, [SEA, SKY]) for recital in more]
    with serving("--model", model, "--ctx-size", "16384", "-np", "8") as server:
        side_by_side(
            lambda case: check(speaker, server, *case),
            [(*case, choice) for case in cases for choice in CHOICES],
        )


def check(
    speaker: Speaker, server: Server, cue: str, calls: list[tuple[str, Arguments]], choice: str
) -> None:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": f"Please say {cue}."}],
        "tools": TOOLS,
        "tool_choice": choice,
        "max_tokens": 200,
        "temperature": 0,
        "chat_template_kwargs": speaker.variables,
    }
    told = whole(server, body)
    assert told == streamed(server, body)
    assert told.arguments() == calls, (cue, choice)
    assert told.finish_reason == "tool_calls"
    assert not told.content.strip()
