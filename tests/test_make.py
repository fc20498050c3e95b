"""What `make` can do: its suites, and old names."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SUITES = re.findall(r"^check-([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make here")


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """Without a make that this one runs in."""
    command = ["env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "make", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_help_lists_all_suites() -> None:
    """Each one that there is, behind a dozen targets, in a terminal of 80 columns."""
    lines = make("help").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert [m[1] for line in lines if (m := re.match(r" +SUITE=([a-z]+) ", line))] == SUITES
    assert sum(line.startswith("make ") for line in lines) <= 14


def test_a_suite_runs() -> None:
    """One, or several in turn; an unknown one and none end with the names that there are."""
    for suite in SUITES:
        done = make("--dry-run", "check", f"SUITE={suite}")
        assert (done.returncode, done.stderr) == (0, "")
        assert "python -m " in done.stdout.splitlines()[-1]
    both = make("--dry-run", "check", "SUITE=real harm").stdout
    assert both.index("checks/real") < both.index("checks/fuzz")
    for words in (["check"], ["check", "SUITE=unheard"]):
        done = make(*words)
        assert done.returncode == 2
        assert " ".join(SUITES) in done.stderr


@pytest.mark.parametrize("path", ["nope.gguf", "./nope", "/nope/m.gguf"])
def test_a_model_that_is_not_there(path: str) -> None:
    """It is said before anything is installed; here no Python is found to install with."""
    done = make("serve", f"MODEL={path}", "PYTHON=false")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        f"gguf-worker: There is no file {path}. Check the path in MODEL=..."
    )
    assert "Python" not in done.stderr


@pytest.mark.parametrize("name", ["", "Makefile", "./Makefile", "hf:a/b::file=m.gguf", "a/b:Q4_0"])
def test_other_models_are_the_workers_to_find(name: str) -> None:
    """A file that is there, a name and none go on to the installation."""
    assert "Python 3.11 or newer" in make("serve", f"MODEL={name}", "PYTHON=false").stderr


@pytest.mark.parametrize(
    "old",
    [
        "test-real",
        "test-harm",
        "test-install",
        "test-fleet",
        "test-page",
        "test-gpu",
        "clients",
        "suites",
    ],
)
def test_old_names_run_the_same(old: str) -> None:
    """Scripts of others may call a suite by its old target."""
    new = make("--dry-run", "check", f"SUITE={old.removeprefix('test-')}").stdout
    assert make("--dry-run", old).stdout == new
