"""Clients from the index talk to a worker whose model recites: `make check SUITE=clients`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from checks.clients.installed import PROGRAMS, VENV, interpreter, needs_clients, node_modules, run
from checks.clients.programs import scene
from tests.support.models.speaking import FAMILIES
from tests.support.programs.processes import Server, serving

HERE = Path(__file__).parent
THOUGHT = "They want to know."
CALLED_PET = f"{scene.PET} By a call."
LAST = 2 * len(scene.STEPS) + 2  # messages of the loop: a question, calls and results, the answer

pytestmark = needs_clients


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """Qwen 3 that says each of the scene's lines when it is its turn."""
    qwen = FAMILIES["qwen3"]
    lines = {
        scene.HELLO: qwen.answer(THOUGHT, scene.GREETING),
        scene.PET: json.dumps(scene.ANIMAL),
        CALLED_PET: qwen.answer(THOUGHT, "", [("Pet", scene.ANIMAL)]),
    }
    cue = scene.TOUR
    for name, arguments, result in scene.STEPS:
        lines[cue] = qwen.answer(THOUGHT, "", [(name, arguments)])
        cue = result
    lines[cue] = qwen.answer(THOUGHT, scene.END)
    recitals = [qwen.recital(text, cue, seed) for seed, (cue, text) in enumerate(lines.items())]
    model = qwen.write_model(tmp_path_factory.mktemp("clients") / "reciting.gguf", recitals)
    state = tmp_path_factory.mktemp("state")
    options = ("--ctx-size", "8192", "-np", "2", "--state-dir", state, "--resume-seconds", "60")
    with serving("--model", model, *options) as running:
        yield running


def python(program: str, server: Server, place: str = ".") -> dict[str, Any]:
    """What a program of ours found with a client that is installed in this place."""
    said = run(interpreter(place), PROGRAMS / f"{program}.py", server.url)
    return json.loads(said.splitlines()[-1])


def node(program: str, server: Server) -> dict[str, Any]:
    """The same in Node."""
    folder = node_modules().parent
    names = ("HELLO", "PET", "SCHEMA", "TOUR", "STEPS", "TOOLS")
    told = json.dumps({name.lower(): getattr(scene, name) for name in names})
    for file in (HERE / "node").glob("*.mjs"):
        shutil.copy(file, folder)
    return json.loads(run("node", folder / f"{program}.mjs", server.url, told).splitlines()[-1])


def test_openai(server: Server) -> None:
    """Chats, streams, tools, structured answers and responses."""
    assert python("openai_chat", server) == {
        "chat": scene.GREETING,
        "batch": [scene.GREETING] * 3,
        "stream": scene.GREETING,
        "parse": scene.ANIMAL,
        "loop": [LAST, scene.END],
        "loop_streamed": [LAST, scene.END],
        "required": ["look_up", scene.STEPS[0][2]],
        "response": scene.GREETING,
        "response_stream": scene.GREETING,
        "response_resume": scene.GREETING,
        "response_parse": scene.ANIMAL,
        "response_loop": [len(scene.STEPS), scene.END],
    }


def test_anthropic(server: Server) -> None:
    """Messages, thinking, tools and counting."""
    assert python("anthropic_messages", server) == {
        "chat": scene.GREETING,
        "stream": scene.GREETING,
        "thinks": ["thinking", "text"],
        "loop": [LAST, scene.END],
        "loop_streamed": [LAST, scene.END],
        "tokens": True,
        "refused": "invalid_request_error",
    }


def test_langchain(server: Server) -> None:
    """Bound tools and structured output, by chats and by responses."""
    assert python("langchain_chat", server) == {
        "loop": [LAST, scene.END],
        "loop_streamed": [LAST, scene.END],
        "loop_responses": [LAST, scene.END],
        "structured": scene.ANIMAL,
        "structured_by_call": scene.ANIMAL,
    }


def test_agents(server: Server) -> None:
    """Frameworks that run the loop of three steps by themselves."""
    rounds = len(scene.STEPS) + 1
    assert python("frameworks", server) == {
        "pydantic_loop": [LAST, scene.END],
        "pydantic_responses": [LAST, scene.END],
        "pydantic_streamed": [LAST - 1, scene.END],
        "pydantic_structured": scene.ANIMAL,
        "agents_chat": [rounds, scene.END],
        "agents_responses": [rounds, scene.END],
        "agents_structured": scene.ANIMAL,
        "microsoft_loop": [LAST, scene.END],
    }


def test_litellm(server: Server) -> None:
    """Its OpenAI provider and its Anthropic one."""
    assert python("litellm_calls", server, "litellm") == {
        "chat": scene.GREETING,
        "stream": scene.GREETING,
        "loop": [LAST, scene.END],
        "loop_streamed": [LAST, scene.END],
        "loop_anthropic": [LAST, scene.END],
        "loop_anthropic_streamed": [LAST, scene.END],
        "overflow": ["ContextWindowExceededError"] * 2,
    }


def test_ollama(server: Server) -> None:
    """Chats, tools, formats, and what the model can."""
    assert python("ollama_chat", server) == {
        "chat": scene.GREETING,
        "stream": scene.GREETING,
        "structured": scene.ANIMAL,
        "loop": [LAST, scene.END],
        "loop_streamed": [LAST, scene.END],
        "model": True,
    }


def test_llm(server: Server, tmp_path: Path) -> None:
    """The command line: an answer, a schema, tools."""
    entry = {
        "model_id": "worker", "model_name": "m", "api_base": f"{server.url}/v1",
        "supports_tools": True, "supports_schema": True,
    }  # fmt: skip
    # JSON is YAML.
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([entry]))
    (tmp_path / "tools.py").write_text(
        f"PLACES = {scene.PLACES!r}\n"
        'def look_up(place: str) -> str:\n    "To look up."\n    return PLACES[place]\n'
        f'def rest() -> str:\n    "To rest."\n    return {scene.STEPS[-1][2]!r}\n'
    )

    def llm(*arguments: str | Path) -> str:
        command = (Path(VENV or "") / "bin/llm", "prompt", "-m", "worker", "--no-log")
        return run(*command, *arguments, LLM_USER_PATH=str(tmp_path)).strip()

    assert llm(scene.HELLO) == scene.GREETING
    assert llm(scene.HELLO, "--no-stream") == scene.GREETING
    assert json.loads(llm(scene.PET, "--schema", json.dumps(scene.SCHEMA))) == scene.ANIMAL
    assert llm(scene.TOUR, "--functions", tmp_path / "tools.py").endswith(scene.END)


def test_openai_for_node(server: Server) -> None:
    """Chats, a tool runner, structured answers and responses."""
    assert node("openai_chat", server) == {
        "chat": scene.GREETING,
        "stream": scene.GREETING,
        "loop": [LAST, scene.END],
        "parse": scene.ANIMAL,
        "response": scene.GREETING,
        "response_stream": scene.GREETING,
        "response_resume": scene.GREETING,
    }


def test_ai_sdk(server: Server) -> None:
    """Text, thoughts, a loop of tools, an object; a chat that comes back to its answer."""
    rounds = len(scene.STEPS) + 1
    assert node("ai_sdk", server) == {
        "chat": scene.GREETING,
        "thought": THOUGHT,
        "stream": scene.GREETING,
        "loop": [rounds, scene.END],
        "loop_streamed": [rounds, scene.END],
        "loop_responses": [rounds, scene.END],
        "resume": scene.GREETING,
        "object": scene.ANIMAL,
    }
