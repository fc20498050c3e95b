"""`worker bench --decisions`, whole, with a few questions."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import msgspec
import pytest

from worker.bench.decisions.report import DecisionReport
from worker.cli.main import main
from worker.demo import MODEL_PATH
from worker.model.calibration import DecisionCalibration, calibration_path

STATE = {
    "state": "Question: What is the capital of France?",
    "questions": {
        "true": {"type": "noul", "instructions": "The capital is Paris."},
        "city": {"type": "choice", "criteria": {"Rome": None, "Paris": None, "Oslo": None}},
        "size": {"type": "score", "criteria": ["small", "large", "very large"]},
    },
    "answers": {"true": True, "city": "Paris", "size": 2},
}


def test_a_level_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All questions are asked over HTTP; the report has each type's measures, the documents are
    written, and a calibration of the file's bytes lies beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = Path(shutil.copy(MODEL_PATH, tmp_path / "mine.gguf"))
    questions = tmp_path / "mine.jsonl"
    questions.write_text(json.dumps(STATE) + "\n" + json.dumps({**STATE, "state": "Hm."}) + "\n")
    out = tmp_path / "out"
    words = ["--decisions", str(questions), "--quants", "F16", "--out", str(out), "--json"]
    assert main(["bench", str(model), *words]) == 0
    report = msgspec.json.decode(capsys.readouterr().out, type=DecisionReport)
    (level,) = report.levels
    assert (report.questions, report.num_questions, report.num_states) == ("mine.jsonl", 6, 2)
    assert level.error is None
    assert level.is_reference
    assert {kind: found.questions for kind, found in level.by_kind.items()} == {
        "statement": 2, "choice": 2, "scale": 2,
    }  # fmt: skip
    assert level.temperatures == {}  # of six questions none can be fitted
    assert {path.name for path in out.iterdir()} == {"report.json", "report.md", "report.svg"}
    found = msgspec.json.decode(calibration_path(model).read_bytes(), type=DecisionCalibration)
    assert found.sha256 == hashlib.sha256(model.read_bytes()).hexdigest()
    assert found.modes == dict.fromkeys(("statement", "choice", "scale"), "letters")


def test_mistakes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of questions that is none is refused before a model is loaded."""
    file = tmp_path / "mine.jsonl"
    file.write_text("{}")
    assert main(["bench", "--decisions", str(file)]) == 2
    assert "Line 1 of mine.jsonl is no state with questions" in capsys.readouterr().err


def test_a_model_behind_the_option_is_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    """`--decisions my.gguf` asks our questions of my.gguf."""
    assert main(["bench", "--decisions", "not-there.gguf"]) == 1
    assert "not-there.gguf" in capsys.readouterr().err
