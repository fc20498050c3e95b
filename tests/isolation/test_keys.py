"""A key is gone from where others look: process lists, children's variables, core files."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs.processes import Server, serving
from worker import log
from worker.isolation import keys

SECRET = "s3cret-of-the-test"
ONLY_HERE = pytest.mark.skipif(
    not Path("/proc/self/mem").exists(), reason="this system has no /proc/self/mem"
)
WAYS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "word": (("--api-key", SECRET), {"LLORCH_API_TOKEN": SECRET}),
    "joined": ((f"--api-key={SECRET}",), {}),
    "variables": ((), {"LLAMA_API_KEY": SECRET, "LLAMA_ARG_API_KEY": SECRET}),
}


def shown(server: Server) -> str:
    """What the kernel tells of its words and variables."""
    proc = Path(f"/proc/{server.pid}")
    return (proc / "cmdline").read_text() + (proc / "environ").read_text()


@ONLY_HERE
@pytest.mark.parametrize("way", WAYS)
def test_process_lists(way: str, tiny: Path) -> None:
    """However the key came, `ps e` does not show it; all other words stand where they stood."""
    words, variables = WAYS[way]
    options = ("--model", tiny, "-t", "1", *words, "--alias", "name")
    with serving(*options, env={**variables, "ANOTHER_ONE": "kept"}) as server:
        assert SECRET not in shown(server)
        assert "ANOTHER_ONE=kept" in shown(server)
        seen = shown(server).split("\0")
        assert seen[seen.index("--model") + 1] == str(tiny)
        assert seen[seen.index("--alias") + 1] == "name"
        warned = [line for line in server.lines if "a key on the command line" in line]
        assert len(warned) == (1 if words else 0)
        assert not any(SECRET in line for line in server.lines)


def test_where_it_cannot_be_taken_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a system without that file the log says that the key is seen, where it is."""
    monkeypatch.setattr(keys, "_MEMORY", tmp_path / "none")

    def no_cores(_: int) -> tuple[int, int]:
        return 0, 0  # the limit of the tests stays as it is

    monkeypatch.setattr(resource, "getrlimit", no_cores)
    log.configure("json")
    for words, warned in ((["worker", "--api-key=k"], True), (["worker", "--api-keys"], False)):
        monkeypatch.setattr(sys, "orig_argv", words)
        keys.protect_key()
        error = capsys.readouterr().err
        assert ('can be seen in process lists"' in error) is warned
    log.configure("console", "error")


PARENT = """
import os, subprocess, sys
from worker.cli.main import parser
from worker.cli.options import settings_from
from worker.isolation.keys import hide_key

settings = settings_from(parser("serve").parse_args(["serve"]))
hide_key()
child = [sys.executable, "-c", "import os; print(dict(os.environ))"]
print(settings.api_keys, subprocess.run(child, capture_output=True, text=True).stdout)
"""


def test_children_do_not_get_it() -> None:
    """A process that this one starts has no variable with the key."""
    env = {**os.environ, "LLAMA_API_KEY": SECRET, "LLORCH_API_TOKEN": SECRET, "STAYS": "here"}
    ran = subprocess.run([sys.executable, "-c", PARENT], env=env, capture_output=True, text=True)
    keys, _, variables = ran.stdout.partition(" ")
    assert keys == f"({SECRET!r},)"
    assert SECRET not in variables
    assert "STAYS" in variables


def test_core_files(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a key the limit is one byte, which writes no file and feeds no pipe; it can be raised
    again. Without one it is left as it was. faulthandler leaves the signal to the system."""
    monkeypatch.chdir(tmp_path)
    env = {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONFAULTHANDLER": "1"}
    before = resource.getrlimit(resource.RLIMIT_CORE)
    with serving("--model", tiny, "-t", "1", "--api-key", SECRET, env=env) as server:
        if sys.platform == "linux":
            limits = resource.prlimit(server.pid, resource.RLIMIT_CORE)
            assert limits == (min(1, before[1]) if before[1] >= 0 else 1, before[1])
        server.process.send_signal(signal.SIGABRT)
        # faulthandler walks stacks of threads that run on, and may fall over one.
        assert server.wait() in (-signal.SIGABRT, -signal.SIGSEGV)
    assert list(tmp_path.glob("core*")) == []
    with serving("--model", tiny, "-t", "1", env=env) as server:
        if sys.platform == "linux":
            assert resource.prlimit(server.pid, resource.RLIMIT_CORE) == before
