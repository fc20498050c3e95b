"""`worker fleet`, which is a distribution of its own."""

from __future__ import annotations

import importlib.metadata
from types import SimpleNamespace
from typing import Any

import pytest

from worker.cli.main import main


def found(monkeypatch: pytest.MonkeyPatch, *commands: Any) -> None:
    """These are installed."""

    def entry_points(**asked: str) -> list[Any]:
        assert asked == {"group": "worker.commands", "name": "fleet"}
        return [SimpleNamespace(load=lambda command=command: command) for command in commands]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)


@pytest.mark.parametrize("words", [[], ["--help"], ["serve", "fleet.toml"]])
def test_without_it_one_sentence_says_what_to_install(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the user's to install: exit code 2."""
    found(monkeypatch)
    assert main(["fleet", *words]) == 2
    captured = capsys.readouterr()
    assert "make install FLEET=1" in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_its_words_and_its_exit_code_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options too, which the worker does not know."""
    asked: list[list[str]] = []

    def command(words: list[str]) -> int:
        asked.append(words)
        return 4

    found(monkeypatch, command)
    assert main(["fleet", "plan", "--address", "h:1"]) == 4
    assert asked == [["plan", "--address", "h:1"]]
