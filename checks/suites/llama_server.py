"""llama-server's own unit tests, over the worker and, where it is named, over llama-server."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from checks.real.bert import mini_lm
from checks.real.weights import GEMMA3, SMOLLM2, bring
from checks.suites.outcome import Outcome, junit
from checks.suites.sdist import environment, llama_cpp
from tests.support.models.infilling import write_infilling

_HERE = Path(__file__).parent
# What is changed in their files: file -> (a text, another one). Nothing is downloaded, and names of
# headers have no letters of their own (RFC 9110, 5.1).
_CHANGES = {
    "conftest.py": ("ServerPreset.load_all()", "pass"),
    "utils.py": ("dict(response.headers)", "response.headers"),
}
_DRAFTS = ("stories15M-q4_0.gguf",)


def weights_in(folder: Path) -> dict[str, str]:
    """What stands for the models that the tests name."""
    bring()
    smollm, minilm = str(SMOLLM2.path), str(mini_lm().write(folder / "minilm.gguf"))
    return {
        "ggml-org/test-model-stories260K": smollm,
        "ggml-org/test-model-stories260K-infill": str(write_infilling(folder)),
        "ggml-org/models/tinyllamas": smollm,
        "ggml-org/models/bert-bge-small": minilm,
        "ggml-org/models/jina-reranker": minilm,
        "ggml-org/stories15M_MOE": smollm,
        "ggml-org/tinygemma3": str(GEMMA3.path),
    }


def outcome_of(
    ours: Sequence[str], theirs: Sequence[str] | None, chosen: Sequence[str], jobs: int
) -> Outcome:
    """Over the worker and, where there is one, over llama-server with the same weights.

    ours, theirs  commands that start them; chosen: tests, none: all quick ones
    """
    peer = outcomes(theirs, chosen, jobs) if theirs else {}
    return Outcome("llama-server", outcomes(ours, chosen, jobs), peer)


def outcomes(server: Sequence[str], chosen: Sequence[str], jobs: int) -> dict[str, str]:
    """Test -> passed, skipped, or the first line of why it failed.

    server  the command that starts it; llama-server's options are put behind
    chosen  further arguments of pytest
    """
    python = environment(_HERE / "llama_server.txt")
    theirs = llama_cpp() / "tools/server"
    with tempfile.TemporaryDirectory(dir=theirs, prefix="run-") as name:
        folder = Path(name)
        shutil.copytree(theirs / "tests", folder, dirs_exist_ok=True)
        for file, (old, new) in _CHANGES.items():
            text = (folder / file).read_text()
            assert old in text
            (folder / file).write_text(text.replace(old, new))
        weights = weights_in(folder)
        downloads = folder / "tmp"
        downloads.mkdir(exist_ok=True)
        for known in _DRAFTS:
            (downloads / known).symlink_to(weights["ggml-org/models/tinyllamas"])
        stand_in = folder / "llama-server"
        stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m checks.suites.stand_in "$@"\n')
        stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
        report = folder / "report.xml"
        root = str(_HERE.parents[1])
        subprocess.run(
            [python, "-m", "pytest", "-q", "-m", "not slow", f"-n{jobs}", "--dist", "worksteal",
             "--timeout", "240", "-p", "no:cacheprovider", f"--junitxml={report}", *chosen],
            cwd=folder, check=False, stdout=sys.stderr,
            env={**os.environ, "LLAMA_SERVER_BIN_PATH": str(stand_in), "PYTHONPATH": root,
                 "SUITE_SERVER": json.dumps(list(server)), "SUITE_WEIGHTS": json.dumps(weights)},
        )  # fmt: skip
        return junit(report, "unit.")
