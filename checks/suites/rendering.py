"""All templates of llama.cpp with twelve conversations, beside transformers' own rendering."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from pathlib import Path

import msgspec

from checks.suites.conversations import CONVERSATIONS
from checks.suites.outcome import PASSED, Outcome
from checks.suites.sdist import environment, llama_cpp
from worker.api.intake.chat.asking import with_one_system
from worker.api.intake.chat.chat_request import ChatRequest, messages_of
from worker.api.intake.chat.tools import tools_of
from worker.api.intake.media_inputs import MediaInputs
from worker.chat.format import ChatFormat
from worker.chat.template import ChatTemplate
from worker.chat.thinking import Thinking
from worker.errors import RequestError

_HERE = Path(__file__).parent


def outcome() -> Outcome:
    """Passed: equal to transformers'. Else how it differs, and whether that has a reason."""
    templates = llama_cpp() / "models/templates"
    python = environment(_HERE / "transformed.txt")
    said = subprocess.run(
        [python, _HERE / "transformed.py", templates], capture_output=True, check=True
    ).stdout
    theirs: dict[str, list[str | None]] = json.loads(said)
    found: dict[str, str] = {}
    for path in sorted(templates.glob("*.jinja")):
        template = ChatTemplate(path.read_text("utf-8"), bos="<s>", eos="</s>")
        chat_format = ChatFormat(template, {})
        for name in CONVERSATIONS:
            case = f"{path.stem} {name}"
            found[case] = _compared(name, _rendered(chat_format, name), theirs[case])
    return Outcome("rendering", found)


def _rendered(chat_format: ChatFormat, name: str) -> str | None:
    messages, tools = copy.deepcopy(CONVERSATIONS[name])
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    body = msgspec.convert({"messages": messages, "tools": tools}, ChatRequest)
    try:
        return chat_format.conversation(
            with_one_system(list(messages_of(body, MediaInputs()))), tools_of(body.tools).shown,
            thinking=Thinking(), add_generation_prompt=True, continues=False, variables={},
        ).text  # fmt: skip
    except RequestError:
        return None


def _compared(name: str, ours: str | None, theirs: list[str | None]) -> str:
    """PASSED, a kind that has a reason in accepted.toml, or what is wrong."""
    as_sent = [text for text in theirs[:2] if text is not None]
    if ours is None:
        return "we raise" if as_sent else "both raise"
    if ours in as_sent:
        return PASSED
    if ours in theirs[2:]:
        return "parts are text" if as_sent else "transformers raises"
    marks = _marks(name)
    told = {mark for mark in marks if mark in ours}
    needed = {mark for mark in marks if not mark.startswith("zt")}
    if not needed <= told:
        return f"we lose {sorted(needed - told)}"
    if not as_sent:
        return "transformers raises"
    lost = [{mark for mark in marks if mark not in text} for text in as_sent]
    if any(marks - missing - told for missing in lost):
        return "we lose what transformers has"
    return "transformers loses words" if all(each - (marks - told) for each in lost) else "other"


def _marks(name: str) -> set[str]:
    messages, tools = CONVERSATIONS[name]
    found = set(re.findall(r"z[surtav][a-z]+", json.dumps(messages)))
    if any(message.get("tool_calls") for message in messages):
        found.add("sky")
    return found | {"Tells the sky", "Tells the sea", "days"} if tools else found
