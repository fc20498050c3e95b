"""What `make test` does when a test process dies natively: shown by planted crashes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.programs.processes import until

# Far more than it takes: what hangs is killed then.
HANGS_S = 600
HOOKS = "from tests.conftest import pytest_configure, pytest_xdist_make_scheduler\n"
DIES = "import ctypes, pytest\ndef die(): ctypes.string_at(0)\n"
PASSES = "def test_it(): pass\ndef test_again(): pass\n"
# It starts a child, that one another in a session of its own; both would stay for ever.
WITH_CHILDREN = r"""
import pathlib, subprocess, sys
FOR_EVER = "import time; time.sleep(10_000)"
PARENT = f'''
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {FOR_EVER!r}], start_new_session=True)
print(os.getpid(), child.pid, flush=True)
{FOR_EVER}
'''
def test_before(): pass
def test_dies():
    child = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    (pathlib.Path(__file__).parent / "children").write_text(child.stdout.readline())
    die()
def test_behind(): pass
"""


def make_test(folder: Path, files: dict[str, str], *options: str) -> tuple[int, str]:
    """Run tests as `make test` does, or with other options: the exit code and all that it prints.

    It fails where the run does not end.
    """
    for name, text in files.items():
        (folder / name).write_text(text)
    if not options:
        found = re.search(r"-m pytest (-n 3 .*) \$\(ARGS\)", (ROOT / "Makefile").read_text())
        assert found
        options = tuple(found[1].split())
    command = [sys.executable, "-m", "pytest", *options, "-rA", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=HANGS_S, check=False,
    )  # fmt: skip
    return ran.returncode, ran.stdout


def outcomes(output: str, outcome: str) -> set[str]:
    """The tests that ended so."""
    return set(re.findall(rf"^{outcome} (\S+)", output, re.MULTILINE))


def runs(pid: int) -> bool:
    """Whether a process runs; one that waits for its parent to ask does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def test_a_run_ends_though_test_processes_die(tmp_path: Path) -> None:
    """Each test that kills its process has failed by name, all others run, no child stays."""
    files = {
        "conftest.py": HOOKS + DIES + "@pytest.fixture(scope='session')\ndef bad(): die()\n",
        "test_a.py": DIES + WITH_CHILDREN,
        "test_b.py": DIES + "def test_first(): die()\ndef test_behind(): pass\n",
        "test_c.py": DIES + "def test_before(): pass\ndef test_last(): die()\n",
        "test_d.py": DIES + "def test_alone(): die()\n",
        "test_e.py": "def test_by_fixture(bad): pass\ndef test_it(): pass\n",
        "test_f.py": PASSES,
        "test_g.py": DIES + "def test_before(): pass\ndef test_last_of_all(): die()\n",
    }
    code, output = make_test(tmp_path, files)
    assert code == 1, output
    assert outcomes(output, "FAILED") == {
        "test_a.py::test_dies", "test_b.py::test_first", "test_c.py::test_last",
        "test_d.py::test_alone", "test_e.py::test_by_fixture", "test_g.py::test_last_of_all",
    }  # fmt: skip
    assert outcomes(output, "PASSED") == {
        "test_a.py::test_before", "test_a.py::test_behind", "test_b.py::test_behind",
        "test_c.py::test_before", "test_e.py::test_it", "test_f.py::test_it",
        "test_f.py::test_again", "test_g.py::test_before",
    }  # fmt: skip
    if sys.platform == "linux":
        for pid in map(int, (tmp_path / "children").read_text().split()):
            until(lambda pid=pid: not runs(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose children they were")
def test_no_child_outlives_a_single_test_process(tmp_path: Path) -> None:
    """Where tests run in pytest's own process its death ends the run, and their children too."""
    files = {"conftest.py": HOOKS, "test_a.py": DIES + WITH_CHILDREN}
    code, output = make_test(tmp_path, files, "-p", "no:xdist")
    assert code < 0, output
    for pid in map(int, (tmp_path / "children").read_text().split()):
        until(lambda pid=pid: not runs(pid))


AT_ITS_END = """
def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput"):
        die()
"""


@pytest.mark.parametrize(
    ("name", "died", "told"),
    [
        ("test_b.py", "die()\n", "died while it collected tests"),
        ("conftest.py", AT_ITS_END, "died at its end"),
    ],
    ids=["collecting", "ending"],
)
def test_a_death_outside_of_tests_ends_the_run(
    tmp_path: Path, name: str, died: str, told: str
) -> None:
    """Processes that would die one after another are not replaced for ever, and it is told."""
    files = {"conftest.py": HOOKS, "test_a.py": PASSES, "test_b.py": PASSES}
    files[name] += DIES + died
    code, output = make_test(tmp_path, files)
    assert code == 1, output
    assert told in output


def test_a_file_that_is_missing_ends_the_run(tmp_path: Path) -> None:
    """Test processes that end by themselves, with nothing to run, are no deaths."""
    (tmp_path / "conftest.py").write_text(HOOKS)
    code, output = make_test(tmp_path, {}, "-n", "2", "--dist", "loadfile", "test_missing.py")
    assert code != 0
    assert "no tests ran" in output
    assert "INTERNALERROR" not in output


def test_a_test_that_hangs_is_named(tmp_path: Path) -> None:
    """What takes longer than pyproject allows ends its process with the stacks; others run."""
    settings = "[pytest]\nfaulthandler_timeout = 8\nfaulthandler_exit_on_timeout = true\n"
    files = {
        "pytest.ini": settings,
        "conftest.py": HOOKS,
        "test_a.py": "import time\ndef test_hangs(): time.sleep(10_000)\ndef test_it(): pass\n",
        "test_b.py": PASSES,
    }
    code, output = make_test(tmp_path, files)
    assert code == 1, output
    assert outcomes(output, "FAILED") == {"test_a.py::test_hangs"}
    assert "Timeout (0:00:08)!" in output
