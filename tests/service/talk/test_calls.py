"""Required calls of a model that says nothing by itself: its weights are random."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.support.models import ggufs, templates
from tests.support.sessions import load
from worker.chat.format import ChatFormat
from worker.chat.message import Message, Tool
from worker.chat.template import ChatTemplate
from worker.chat.thinking import Thinking
from worker.engine.engine import Engine
from worker.engine.sampling import SamplingParams
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded
from worker.model.config import load_config
from worker.service.talk.asked import Asked, ask
from worker.service.talk.said import Said
from worker.service.talk.talk import Talk

pytestmark = pytest.mark.skipif(not templates.names(), reason=templates.WHY_NOT)

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"at": {"enum": ["Rome", "Oslo"]}, "deep": {"type": "boolean"}},
    "required": ["at", "deep"],
    "additionalProperties": False,
}
TOOLS = tuple(Tool(name=name, parameters=PARAMETERS) for name in ("sky", "sea"))
FAMILIES = (
    "Qwen-Qwen3-0.6B", "Qwen3-Coder", "meta-llama-Llama-3.1-8B-Instruct", "GLM-4.6",
    "mistralai-Mistral-Nemo-Instruct-2407", "unsloth-mistral-Devstral-Small-2507",
    "deepseek-ai-DeepSeek-V3.1", "deepseek-ai-DeepSeek-V3.2", "google-gemma-4-31B-it",
    "ibm-granite-granite-3.3-2B-Instruct", "meetkai-functionary-medium-v3.2",
    "google-gemma-2-2b-it", "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
)  # fmt: skip


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Generator[Loaded]:
    path = ggufs.write_llama(tmp_path_factory.mktemp("models") / "model.gguf")
    with load(Path(path), num_cells=8192) as backend:
        yield cast(Loaded, SimpleNamespace(backend=backend, config=load_config(path)))


def asked_of(loaded: Loaded, family: str, **options: Any) -> Asked:
    chat = ChatFormat(ChatTemplate(templates.text(family), bos="", eos=""), {})
    given: dict[str, Any] = {
        "messages": (Message(role="user", content="x"),),
        "tools": TOOLS,
        "choice": "required",
        "parallel": False,
        "thinking": Thinking(is_on=False),
        "max_tokens": 400,
        "sampling": SamplingParams(seed=1),
        **options,
    }
    return ask(Talk(**given), chat, loaded)


def said(loaded: Loaded, asked: Asked) -> Said:
    """What the model answers."""
    ticks = itertools.count()
    engine = Engine(loaded.backend, lambda: next(ticks) * 1e-4)
    (request,) = asked.generation.requests(loaded.backend.max_length)
    # What the prompt says makes no difference to it; a byte is a token, so it would be long.
    engine.add(msgspec.structs.replace(request, prompt=request.prompt[-8:], checkpoints=()))
    found = Said(asked.reader())
    while not engine.is_idle:
        for delta in engine.step():
            found.take(delta)
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_required_calls_are_valid(loaded: Loaded, family: str) -> None:
    """One call of a tool that there is, with arguments that its schema holds."""
    found = said(loaded, asked_of(loaded, family))
    assert found.finish_reason == "tool_calls", (found.content, found.thought)
    assert found.content.strip() == ""
    (call,) = found.calls
    assert call.name in ("sky", "sea")
    arguments = msgspec.json.decode(call.arguments)
    assert arguments.keys() == {"at", "deep"}
    assert arguments["at"] in ("Rome", "Oslo")
    assert isinstance(arguments["deep"], bool)


@pytest.mark.parametrize("name", ["sky", "sea"])
def test_a_named_tool_is_called(loaded: Loaded, name: str) -> None:
    """And no other."""
    found = said(loaded, asked_of(loaded, "Qwen3-Coder", choice="auto", only=name))
    assert [call.name for call in found.calls] == [name]


@pytest.mark.parametrize(
    "options",
    [{"only": "sun", "choice": "auto"}, {"choice": "required", "tools": ()}],
)
def test_what_cannot_be_called_is_refused(loaded: Loaded, options: dict[str, Any]) -> None:
    """A named choice never becomes another one."""
    with pytest.raises(RequestError) as caught:
        asked_of(loaded, "Qwen3-Coder", **options)
    assert caught.value.param == "tool_choice"
