"""A client from the index gets the words of a sound: `make check SUITE=clients`."""

from __future__ import annotations

import json
from pathlib import Path

from checks.clients.installed import PROGRAMS, interpreter, needs_clients, run
from tests.support.models.projectors import wav, write_hearing
from tests.support.programs.processes import serving

pytestmark = needs_clients


def test_openai(tmp_path: Path) -> None:
    """Whole, as text and streamed the words are the same."""
    model, _ = write_hearing(tmp_path)
    sound = tmp_path / "a.wav"
    sound.write_bytes(wav())
    with serving("--model", model, "--ctx-size", "2048", "-n", "12") as server:
        said = run(interpreter(), PROGRAMS / "transcriptions.py", server.url, str(sound))
    found = json.loads(said.splitlines()[-1])
    assert found.pop("translation") is True
    assert len(set(found.values())) == 1
    assert found["whole"]
