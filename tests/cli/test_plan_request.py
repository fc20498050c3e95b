"""`worker plan --request`, by which a program asks where a worker would fit."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from worker.cli.main import main

GiB = 2**30


class Asked:
    """Asks by the command, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, text: bytes) -> tuple[int, Any]:
        """Exit code, and the answer or the error's line."""
        stdin = io.TextIOWrapper(io.BytesIO(text))
        self._monkeypatch.setattr(sys, "stdin", stdin)
        code = main(["plan", "--request"])
        captured = self._capsys.readouterr()
        return code, captured.err if code else msgspec.json.decode(captured.out)

    def of(self, *options: str, places: list[Any] | None = None) -> tuple[int, Any]:
        """The same for options and places."""
        return self(msgspec.json.encode({"options": options, "places": places or []}))


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Asked:
    """What asks."""
    return Asked(monkeypatch, capsys)


def test_options_are_read_as_serve_reads_them(ask: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were given have their names; the environment says nothing."""
    monkeypatch.setenv("LLAMA_ARG_THREADS", "7")
    code, said = ask.of("-np", "3", "-a", "x", "--queue-size", "5", "-ts", "1,2")
    assert code == 0
    given = {"parallel": "--parallel", "alias": "--alias", "queue_size": "--queue-size"}
    assert said["given"] == given | {"tensor_split": "--tensor-split"}
    options = said["options"]
    assert (options["threads"], options["queue_size"]) == (None, 5)
    assert options["tensor_split"] == [1, 2]
    assert said["cpus"] >= 1
    assert 0 < said["here"]["available"] <= said["here"]["total"]
    assert (said["layers"], said["plans"]) == (0, [])


def test_a_plan_for_each_place(ask: Asked, tiny: Path) -> None:
    """What is there counts, and nothing of this machine; what does not fit is told by `fits`."""
    gpu = {"name": "G", "available": GiB}
    places = [
        {"total": GiB, "available": 10},
        {"total": GiB, "available": GiB},
        {"total": GiB, "available": GiB, "devices": [gpu]},
    ]
    code, said = ask.of("--model", str(tiny), "-c", "512", places=places)
    assert code == 0
    assert [each["fits"] for each in said["plans"]] == [False, True, True]
    assert said["layers"] == 3
    assert [each["gpu_layers"] for each in said["plans"]] == [0, 0, 3]
    assert {each["device"] for each in said["plans"][2]["devices"]} == {"CPU", "G"}
    assert [each["estimated"] for each in said["plans"]] == [[], [], ["compute"]]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (b"no", 2, "USAGE: The request cannot be read"),
        (b'{"option": []}', 2, "USAGE: The request cannot be read"),
        (b'{"options": ["--paralel", "2"]}', 2, "USAGE: Unknown option --paralel."),
        (b'{"options": ["--help"]}', 2, "USAGE: --help is no option of a worker that serves."),
        (b'{"options": ["--model", "no.gguf"], "places": [{"total": 1, "available": 1}]}', 1, ""),
    ],
)  # fmt: skip
def test_mistakes(text: bytes, code: int, said: str, ask: Asked) -> None:
    """One sentence, as for every command."""
    found, line = ask(text)
    assert found == code
    assert line.startswith(f"error: {said}")
    assert line.count("\n") == 1
