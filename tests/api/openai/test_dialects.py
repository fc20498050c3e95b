"""What each family writes arrives as calls, thoughts and content, however its text is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.chats import TOOLS, Told, streamed, whole
from tests.support.models.speaking import FAMILIES, Arguments, Speaker
from tests.support.programs.processes import Server, serving, side_by_side

SKY: Arguments = {
    "at": 'Zürich ☂ "old" <town>\nby \\ the {lake}',
    "days": [1, 2],
    "more": {"deep": {"er": [True, None, 1.5]}, "nothing": {}},
}
CALLS: list[tuple[str, Arguments]] = [("sky", SKY), ("sea", {})]
# Of an answer: (thought, content, calls). `inside`: the thought does not end before the calls.
ANSWERS: dict[str, tuple[str, str, list[tuple[str, Arguments]]]] = {
    "both": ("Rain, or 2 < 3?", "I look.\nThen I tell.", CALLS),
    "plain": ("Nothing to look up.", 'It is {"fine"}, [as] <ever>.', []),
    "bare": ("", "", [("sea", {})]),
    "inside": ("Hm, the sky.", "", CALLS),
}
# Cases and how their text is cut.
CUTS = [("both", 0), ("both", 1), ("plain", 0), ("bare", 0), ("inside", 0)]
DAMAGED = ["broken", "unknown"]
# Where a damaged call may not be said anything else may be, and goes on and on.
MAX_TOKENS = dict.fromkeys(DAMAGED, 30)


def texts_of(speaker: Speaker) -> dict[str, str]:
    """Cases and what is said."""
    texts = {case: speaker.answer(*parts) for case, parts in ANSWERS.items()}
    del texts["inside"]
    if speaker.thought is not None and not speaker.opened:
        calls = speaker.answer(calls=CALLS).removeprefix("".join(speaker.thought))
        texts["inside"] = f"{speaker.thought[0]}{ANSWERS['inside'][0]} {calls}"
    whole_call = speaker.answer(calls=[("sky", {"at": "Rome", "days": [1]})])
    texts["broken"] = whole_call.partition("days")[0]
    texts["unknown"] = speaker.answer(calls=[("moon", {"at": "Rome"})])
    return texts


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_family_says(family: str, tmp_path: Path) -> None:
    """All cases but the first at the same time, each streamed and at once."""
    speaker = FAMILIES[family]
    texts = texts_of(speaker)
    cuts = [(case, seed) for case, seed in CUTS if case in texts]
    cuts += [(case, 0) for case in DAMAGED]
    recitals = [speaker.recital(texts[case], cue_of(case, seed), seed) for case, seed in cuts]
    model = speaker.write_model(tmp_path / "model.gguf", recitals)
    with serving("--model", model, "--ctx-size", "16384", "-np", "8") as server:
        # Nothing is called that was not declared.
        cases = [(case, seed, True) for case, seed in cuts] + [("both", 0, False)]
        check(speaker, server, *cases[0])  # the tools in front of all questions are read once
        side_by_side(lambda case: check(speaker, server, *case), cases[1:])


def cue_of(case: str, seed: int) -> str:
    """What a question holds, so that the model says this case."""
    return f"case {case}{seed}"


def check(speaker: Speaker, server: Server, case: str, seed: int, has_tools: bool) -> None:
    """One answer is what it should be."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": f"Please say {cue_of(case, seed)}."}],
        "tools": TOOLS if has_tools else None,
        "max_tokens": MAX_TOKENS.get(case, 300),
        "temperature": 0,
        "chat_template_kwargs": speaker.variables,
    }
    told = whole(server, body)
    parts = streamed(server, body)
    if told.finish_reason != "tool_calls":
        # A stream has told the beginning of a call that breaks; its text follows as content.
        parts = msgspec.structs.replace(parts, calls=parts.calls[: len(told.calls)])
    assert parts == told
    if case in DAMAGED:
        check_damaged(told)
    elif has_tools:
        check_whole(speaker, told, *ANSWERS[case])
    else:
        assert not told.calls
        assert told.finish_reason == "stop"
        assert told.content.strip() or told.thought.strip()


def check_whole(
    speaker: Speaker, told: Told, thought: str, content: str, calls: list[tuple[str, Arguments]]
) -> None:
    """Thought, content and calls, each where it belongs."""
    calls = calls[: None if speaker.many else 1]
    assert told.thought.strip() == (thought if speaker.thought else "")
    assert told.content.strip() == (content if speaker.speaks or not calls else "")
    assert told.arguments() == calls
    assert told.finish_reason == ("tool_calls" if calls else "stop")


def check_damaged(told: Told) -> None:
    """It is text, or the constraint made other calls of it: never half a call."""
    assert {name for name, _ in told.calls} <= {"sky", "sea"}
    assert len(told.arguments()) == len(told.calls)
    if told.finish_reason == "stop":
        assert told.content.strip()
        assert not told.calls
