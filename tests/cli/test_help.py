"""What `--help` shows in a terminal of 80 columns."""

from __future__ import annotations

import pytest

from worker.cli.main import COMMANDS, main, parser

OWN = [name for name in COMMANDS if name != "fleet"]


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def help_of(name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("name", OWN)
def test_what_comes_first(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A usage that can be taken in at a glance, then what the command does."""
    lines = help_of(name, capsys)
    assert lines.index("") <= 4
    assert max(map(len, lines[:4])) <= 80


@pytest.mark.parametrize("name", OWN)
def test_examples_can_be_copied(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is a line of its own, at the end."""
    lines = help_of(name, capsys)
    examples = [line for line in lines if line.startswith("  worker ")]
    assert examples
    assert all(len(line) <= 80 for line in examples)


@pytest.mark.parametrize("name", ["chat", "decide", "batch"])
def test_own_options_come_first(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They stand before the hundred of `worker serve`."""
    lines = help_of(name, capsys)
    url = next(place for place, line in enumerate(lines) if line.startswith("  --url URL"))
    assert url < lines.index("Model:")


def test_commands_stand_in_one_column() -> None:
    """Each with its text beside it."""
    lines = parser().format_help().splitlines()
    shown = [line.split(maxsplit=1) for line in lines if line.startswith("    ")]
    named = {words[0]: words[1] for words in shown if words[0] in COMMANDS}
    assert named.keys() == COMMANDS.keys()
    columns = {
        line.index(named[name])
        for name in named
        for line in lines
        if line.startswith(f"    {name} ")
    }
    assert len(columns) == 1


def test_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The help, and a next step."""
    assert main([]) == 2
    said = capsys.readouterr().err
    assert "commands:" in said
    assert said.endswith("error: USAGE: No command is named. Try `worker serve my.gguf`.\n")
