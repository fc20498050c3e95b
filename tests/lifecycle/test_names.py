"""Model files with any name, in any folder."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import http
from tests.support.programs.processes import ended, serving

# Folder and file below it.
NAMES = {
    "no text": (b"f\xe9", b"m\xff\xfe.gguf"),
    "what ends lines": ("\u2028f\x85".encode(), "a\nb\u2029\x0c\x1cc.gguf".encode()),
    "quotes": (b"q'\"d", b'it\'s "q" `$(x)`.GGUF'),
    "dash": (b"--model", b"-m.gguf"),
    "longest": (b"d" * 255, b"x" * 250 + b".gguf"),
    "escapes": (b"%s{0}\\n", b"a\x1b[31m\t\x7f.gguf"),
}


def copied(tiny: Path, folder: Path, name: tuple[bytes, bytes]) -> Path:
    """The tiny model under that name."""
    place = folder / os.fsdecode(name[0])
    place.mkdir()
    path = place / os.fsdecode(name[1])
    shutil.copy(tiny, path)
    return path


@pytest.mark.parametrize(
    ("name", "mapped"), [*((name, "--mmap") for name in NAMES), ("no text", "--no-mmap")]
)
def test_a_file_of_any_name_is_served(name: str, mapped: str, tiny: Path, tmp_path: Path) -> None:
    """Every path that tells of the model answers, the id leads back to it, metrics can be read."""
    path = copied(tiny, tmp_path, NAMES[name])
    with serving("--model", path, "--ctx-size", "512", "-np", "1", mapped) as server:
        for asked in ("/health", "/props", "/info", "/slots", "/api/tags", "/v1/models"):
            assert http.get(server.url + asked).status_code == 200, asked
        model = http.get(server.url + "/v1/models").json()["data"][0]["id"]
        assert http.get(f"{server.url}/v1/models/{quote(model, safe='')}").status_code == 200
        answer = server.post({"model": model, "prompt": "x", "max_tokens": 1}).json()
        assert answer["model"] == model
        metrics = text_string_to_metric_families(http.get(server.url + "/metrics").text)
        labels = {sample.labels.get("model_name") for each in metrics for sample in each.samples}
        assert model in labels


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_is_shown(name: str, tiny: Path, tmp_path: Path) -> None:
    """Commands that print JSON print one line of it, in UTF-8; prose has the name in one line."""
    path = copied(tiny, tmp_path, NAMES[name])
    for words in (["show", path, "--json"], ["plan", path, "--json"], ["check", path, "--json"]):
        done = ended(*words)
        assert done.returncode == 0
        line, end = done.stdout.split("\n")
        assert not end
        assert isinstance(json.loads(line), dict)
    done = ended("show", path)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
