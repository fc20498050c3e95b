"""`worker chat`: a conversation over a worker of its own or a running one."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs.processes import serving
from worker.cli.answer_view import block_end
from worker.cli.main import main

COMMAND = [sys.executable, "-P", "-m", "worker"]
GREEDY = ("--temp", "0")


def chat(said: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A chat whose user says these lines."""
    return subprocess.run(
        [*COMMAND, *words], input=said, capture_output=True, text=True, timeout=300, check=False
    )


def test_a_conversation() -> None:
    """Answers go to standard output, speeds and replies to commands to standard error."""
    said = (
        "What is 3 plus 4?\n/system Be short.\n/regenerate\n/clear\nWhat is 2 plus \\\n2?\n/bye\n"
    )
    done = chat(said, "chat", *GREEDY)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "3 plus 4 is 7."
    assert done.stdout.count("\n") == 3
    assert done.stderr.count("tokens/s") == 3
    assert "The system prompt is set." in done.stderr


def test_its_alias_and_a_file_that_is_not_there() -> None:
    """`run` is the same command; the server's own error and exit code are the command's."""
    done = chat("hello\n", "run", "not-there.gguf")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: NOT_FOUND: ")


def test_a_running_worker(capsys: pytest.CaptureFixture[str]) -> None:
    """--url needs no model, and a key is sent; without a person, a refusal ends the chat."""
    with serving("--api-key", "k") as server:
        good = chat("What is 3 plus 4?\n", "chat", "--url", server.url, "--api-key", "k")
        bad = chat("hello\n/bye\n", "chat", "--url", server.url, "--api-key", "wrong")
    assert good.stdout.strip()
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr == "error: CHAT_FAILED: The API key is wrong.\n"
    assert main(["chat", "a.gguf", "--url", "http://h"]) == 2
    assert "Leave the model out" in capsys.readouterr().err


def test_a_worker_that_is_not_there() -> None:
    """A script that pipes its messages in hears it by the exit code and one sentence."""
    done = chat("hello\nand more\n", "chat", "--url", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.count("No worker answers at http://127.0.0.1:1: ") == 1
    assert done.stderr.endswith("Start one with `worker serve`, or leave --url out.\n")


def test_bytes_that_are_not_utf8(capsys: pytest.CaptureFixture[str]) -> None:
    """A message or a system prompt that is not UTF-8 is a wrong line, not an internal error."""
    said = b"hi \xff\n"
    done = subprocess.run(
        [*COMMAND, "chat"], input=said, capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 2
    last = done.stderr.decode().splitlines()[-1]
    assert last == "error: USAGE: The message is not UTF-8 at byte 3. Convert it with iconv."
    assert main(["chat", "--system", "\udcff"]) == 2
    assert "The system prompt is not UTF-8 at byte 0." in capsys.readouterr().err


def test_an_image_that_is_not_there() -> None:
    """A command that fails says so, and the chat goes on."""
    done = chat("/image\n/image gone.png\n/what\n/regenerate\n/help\n", "chat")
    assert done.returncode == 0
    assert "Name a file: /image FILE." in done.stderr
    assert "gone.png cannot be read" in done.stderr
    assert "There is no command /what." in done.stderr
    assert "There is no answer yet." in done.stderr


def test_a_terminal() -> None:
    """In a terminal Markdown is drawn, and Ctrl-D leaves."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "chat", *GREEDY], stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True, env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(theirs)
    shown = Shown(ours)
    try:
        _ = shown.until("> ")
        os.write(ours, b"What is 3 plus 4?\n")
        answer = shown.until("tokens/s")
        _ = shown.until("> ")
        os.write(ours, b"\x04")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(60)
        os.close(ours)
    assert "3 plus 4 is 7." in answer


class Shown:
    """What a terminal shows."""

    def __init__(self, terminal: int) -> None:
        self.terminal, self.text = terminal, ""

    def until(self, sign: str) -> str:
        """What it shows from where the last sign ended until this one comes."""
        while sign not in self.text:
            assert select.select([self.terminal], [], [], 120)[0], f"no {sign!r}: {self.text}"
            self.text += os.read(self.terminal, 4096).decode(errors="replace")
        found, _, self.text = self.text.partition(sign)
        return found


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("one", 0),
        ("one\n\ntwo", 5),
        ("```\na\n\nb", 0),
        ("```\na\n\nb\n```\n\nc", 14),
        ("a\n\n~~~\n```\n\n", 3),
    ],
)
def test_blocks(text: str, end: int) -> None:
    """A block of Markdown ends at an empty line, but not inside of a fence."""
    assert block_end(text, 0) == end


def test_completion(tmp_path: Path) -> None:
    """The script for bash is one that bash reads, and knows commands and options."""
    done = chat("", "completion", "bash")
    (tmp_path / "worker").write_text(done.stdout)
    subprocess.run(["bash", "-n", tmp_path / "worker"], check=True)
    assert "--ctx-size" in done.stdout
    assert "quantize" in done.stdout
