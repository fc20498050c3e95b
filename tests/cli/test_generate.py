"""`worker generate` about pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.media.asked import PICTURE, question, said
from tests.support.models import ggufs
from tests.support.models.projectors import write_llava
from tests.support.programs.processes import serving
from worker.cli.main import main


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main(["generate", "what is it?", *map(str, words)]) == 2
    return capsys.readouterr().err


@pytest.mark.mtmd
def test_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer is the service's; what is no picture is told."""
    model, _ = write_llava(tmp_path)
    (tmp_path / "a.png").write_bytes(PICTURE)
    words = ["--model", str(model), "--image", str(tmp_path / "a.png"), "--temp", "0", "-n", "8"]
    assert main(["generate", "what is it?", *words]) == 0
    text = capsys.readouterr().out
    with serving("--model", model, "--ctx-size", "2048") as server:
        assert text == said(server, question()) + "\n"
    assert "is of no known format" in refused(capsys, "--model", model, "--image", model)


def test_a_model_that_sees_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, before anything is loaded."""
    model = ggufs.write_llama(tmp_path / "tiny.gguf")
    assert "has no projector" in refused(capsys, "--model", model, "--image", model)
    assert "gone.png cannot be read" in refused(capsys, "--model", model, "--image", "gone.png")
