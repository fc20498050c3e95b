"""Coding agents from npm read a file with their own tools: `make check SUITE=clients`."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from checks.clients.installed import needs_clients, node_modules, run
from tests.support import http
from tests.support.models.speaking import FAMILIES
from tests.support.programs.processes import Server, serving

CLAUDE, CODEX = "Claude, which word is it?", "Codex, which word is it?"
NOTE = "The word is marmalade."
ANSWER = "It is marmalade, then."

pytestmark = needs_clients


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the agents work, with a note in it; their settings are here too."""
    folder = tmp_path_factory.mktemp("agents")
    (folder / "note.txt").write_text(NOTE + "\n")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Generator[Server]:
    """Qwen 3 that reads the note by the agent's tool, and says what is in it."""
    qwen = FAMILIES["qwen3"]
    note = str(folder / "note.txt")
    lines = {
        CLAUDE: qwen.answer("I look.", "", [("Read", {"file_path": note})]),
        CODEX: qwen.answer("I look.", "", [("exec_command", {"cmd": f"cat {note}"})]),
        NOTE: qwen.answer("I have it.", ANSWER),
    }
    recitals = [qwen.recital(text, cue, seed) for seed, (cue, text) in enumerate(lines.items())]
    model = qwen.write_model(folder / "reciting.gguf", recitals)
    with serving("--model", model, "--ctx-size", "8192", "-np", "1") as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_refused(server: Server) -> Generator[None]:
    """Each request of the agent was answered, and had no field that is unknown here."""
    yield
    seen = http.get(f"{server.url}/v1/requests").json()
    assert {each["status"] for each in seen["recent"]} == {200}, seen["recent"]
    assert "not known" not in json.dumps(seen["log"])


def test_claude_code(server: Server, folder: Path) -> None:
    """It calls a tool, gets the answer, and finds its first prompt in the cache."""
    said = run(
        "node", node_modules() / "@anthropic-ai/claude-code/cli-wrapper.cjs",
        "--print", CLAUDE, "--output-format", "json", "--system-prompt", "You are terse.",
        "--tools", "Read", "--allowedTools", "Read",
        cwd=folder, HOME=str(folder), ANTHROPIC_BASE_URL=server.url,
        ANTHROPIC_AUTH_TOKEN="unused", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )  # fmt: skip
    found: dict[str, Any] = json.loads(said)
    assert (found["result"], found["num_turns"], found["is_error"]) == (ANSWER, 2, False)
    assert found["usage"]["cache_read_input_tokens"] > 0


def test_codex(server: Server, folder: Path) -> None:
    """It runs a command, and gets the answer, with the settings of docs/recipes.md."""
    (folder / "terse.md").write_text("You are terse.")
    (folder / "config.toml").write_text(
        f'model = "my-model"\nmodel_provider = "worker"\nweb_search = "disabled"\n'
        f'model_instructions_file = "{folder / "terse.md"}"\n'
        "include_permissions_instructions = false\n"
        "[skills]\ninclude_instructions = false\n"
        "[features]\nmulti_agent = false\ngoals = false\nplugins = false\napps = false\n"
        '[model_providers.worker]\nname = "worker"\nwire_api = "responses"\n'
        f'base_url = "{server.url}/v1"\n'
    )
    said = run(
        "node", node_modules() / "@openai/codex/bin/codex.js", "exec", "--json",
        "--skip-git-repo-check", "--sandbox", "danger-full-access", CODEX,
        cwd=folder, HOME=str(folder), CODEX_HOME=str(folder),
    )  # fmt: skip
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    ran = [item for item in items if item["type"] == "command_execution"]
    assert [(item["exit_code"], item["aggregated_output"].strip()) for item in ran] == [(0, NOTE)]
    assert [item["text"] for item in items if item["type"] == "agent_message"] == [ANSWER]
