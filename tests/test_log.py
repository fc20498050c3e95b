"""The log: sentences for people, fields for programs, nothing of what is not the user's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.models import ggufs
from tests.support.programs.processes import Server
from worker.demo import MODEL_PATH


def console_lines(*words: str) -> list[str]:
    """What a worker writes from its start until it has answered two requests and has ended."""
    server = Server("--model", str(MODEL_PATH), *words)
    try:
        server.wait_for("ready")
        server.post({"prompt": "a", "max_tokens": 2})
        server.post({"prompt": "a", "max_tokens": -5})
        server.process.terminate()
        assert server.wait() == 0
    finally:
        server.end()
    return server.lines


def test_a_start_for_people() -> None:
    """Two lines without warnings lead to the page's address, and one says why it stops."""
    command = [sys.executable, "-m", "worker", "serve", "--port", "0", "--log-format", "console"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        first, second = process.stderr.readline(), process.stderr.readline()
        process.terminate()
        rest = process.stderr.read().splitlines()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stderr.close()
    assert "[info]" in first
    assert "Loading demo-5m-f16." in first
    assert "Ready after" in second
    assert "Open http://127.0.0.1:" in second
    assert len(rest) == 1
    assert "Stopping (SIGTERM)." in rest[0]


def test_json_to_the_last_line(tmp_path: Path) -> None:
    """Each line is an object, also that of an error of usage and that of a failure."""
    for words in (["--port", "99999"], ["--port", "0", "--model", str(tmp_path / "gone.gguf")]):
        done = subprocess.run(
            [sys.executable, "-m", "worker", "serve", "--log-format", "json", *words],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode
        entries = [json.loads(line) for line in done.stderr.splitlines()]
        assert entries[-1]["event"].startswith(f"error: {entries[-1]['code']}: ")
        assert not any("console" in entry for entry in entries)


def test_lines_of_requests() -> None:
    """A request has a line, a refused one with its field; without the option there are none."""
    entries = [json.loads(line) for line in console_lines()]
    good, bad = (entry for entry in entries if entry["event"] == "request")
    assert (good["status"], good["generated_tokens"]) == (200, 2)
    assert (bad["status"], bad["param"]) == (400, "max_tokens")
    assert not [line for line in console_lines("--no-access-log") if '"request"' in line]


@pytest.mark.parametrize(
    ("words", "levels"),
    [
        ("-v", {"debug", "info", "warning", "error"}),
        ("", {"info", "warning", "error"}),
        ("-q", {"warning", "error"}),
        ("--log-level error", {"error"}),
    ],
)
def test_levels(words: str, levels: set[str], tmp_path: Path) -> None:
    """Less severe lines than asked for are not written."""
    model = ggufs.write_llama(tmp_path / "tiny.gguf")
    ended = ("--die-with-parent", "stdin", "--drain-timeout", "0")
    done = subprocess.run(
        [sys.executable, "-m", "worker", "serve", model, "--port", "0", "--draft-min", "3", "-ctk",
         "q8_0", "-fa", "off", "--log-format", "json", *ended, *words.split()],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert {json.loads(line)["level"] for line in done.stderr.splitlines()} <= levels
    assert "options ignored" in done.stderr or "warning" not in levels
