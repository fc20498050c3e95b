"""The tests that openai-python and anthropic-sdk-python have of their resources, over a worker.

They send what their API's description says, mostly made-up names, and hold the answers to their
types.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from checks.suites.outcome import Outcome, junit
from checks.suites.sdist import environment, unpacked
from tests.support.models.infilling import write_infilling
from tests.support.programs.processes import serving

_PACKAGES = Path(__file__).parent / "sdk.txt"
_FOLDER = "tests/api_resources"
# SDK -> (behind the worker's address, its tests of what a worker has)
_TESTS = {
    "openai": (
        "/v1",
        ("chat", "responses", "test_completions.py", "test_embeddings.py", "test_models.py",
         "test_responses.py"),
    ),
    "anthropic": (
        "",
        ("test_messages.py", "test_models.py", "beta/test_messages.py", "beta/test_models.py"),
    ),
}  # fmt: skip
# The models that they name.
_MODELS = "gpt-6-astra,gpt-3.5-turbo-instruct,text-embedding-3-small,model,model_id,claude-opus-5-5"


def outcome(name: str, jobs: int) -> Outcome:
    """name: openai or anthropic; jobs: tests at once"""
    python = environment(_PACKAGES)
    (version,) = re.findall(rf"^{name}\S*==(\S+)", _PACKAGES.read_text(), re.MULTILINE)
    theirs = unpacked(name, version)
    base, files = _TESTS[name]
    with tempfile.TemporaryDirectory() as made:
        model, report = write_infilling(Path(made)), Path(made) / "report.xml"
        chosen = [f"{_FOLDER}/{each}" for each in files]
        with serving("--model", model, "--alias", _MODELS, "--pooling", "mean") as server:
            subprocess.run(
                [python, "-m", "pytest", "-q", f"-n{jobs}", "--timeout", "120", "-p",
                 "no:cacheprovider", f"--junitxml={report}", *chosen],
                cwd=theirs, check=False, stdout=sys.stderr,
                env={**os.environ, "TEST_API_BASE_URL": server.url + base},
            )  # fmt: skip
        return Outcome(name, junit(report, _FOLDER.replace("/", ".") + "."))
