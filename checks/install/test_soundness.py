"""The proof of the installed library: right here, and wrong where a kernel is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.support.programs import planted
from tests.support.programs.processes import WorkerProcess
from worker.errors import BackendError
from worker.llama.proof import blocks
from worker.llama.proof.child import ROW_COUNTS
from worker.llama.soundness import Soundness
from worker.machine import cpu

COMMAND = [sys.executable, "-m", "worker.llama.proof"]


@pytest.fixture(scope="module")
def found() -> Soundness:
    """What the command finds here, as JSON."""
    said = subprocess.run([*COMMAND, "--json"], capture_output=True, timeout=300)
    assert said.returncode == 0, said.stderr
    return msgspec.convert(msgspec.json.decode(said.stdout)["found"], Soundness)


def test_the_library_here_is_sound(found: Soundness) -> None:
    """Each encoding is right with each number of rows, in two of the ways of attention."""
    assert found.problem == ""
    assert found.cases == len(blocks.PROVEN) * 2 * len(ROW_COUNTS)
    assert 0 < found.worst < 0.01
    assert str(found).startswith(f"{found.cases} cases right in ")


def test_features_are_those_of_the_cpu(found: Soundness) -> None:
    """What the library says that it uses is something that this CPU has."""
    has = cpu()[1].replace("_", "").lower().split()
    for name in found.features:
        plain = name.replace("_", "").lower()
        assert any(plain in feature or feature in plain for feature in has), name


@planted.needs_preload
@pytest.mark.parametrize(
    ("name", "body", "part"),
    [
        ("ggml_vec_dot_q5_0_q8_0", "*s = 0.5f;", "computes Q5_0 with 1 row (fused attention, f16"),
        ("ggml_vec_dot_f16", planted.CRASH, "dies of SIGSEGV at "),
        ("ggml_vec_dot_f16", planted.ILLEGAL, "dies of SIGILL at "),
    ],
    ids=["wrong", "fault", "illegal instruction"],
)
def test_a_planted_kernel_is_found(tmp_path: Path, name: str, body: str, part: str) -> None:
    """One wrong kernel is named by its encoding and rows; a fault or an instruction that the CPU
    lacks is an exit code and a sentence, never a signal."""
    env = planted.kernel(tmp_path, name, body)
    child = subprocess.run(COMMAND, capture_output=True, text=True, env=env, timeout=300)
    said = child.stderr.splitlines()[-1]
    assert child.returncode == 1
    assert said.startswith("error: NOT_PROVEN: The installed llama.cpp is not sound on this CPU")
    assert part in said
    assert "make install" in said


@planted.needs_preload
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("ggml_time_init", "its libraries"),
        ("_ZNK18llama_model_loader10print_infoEv", "a file's metadata"),
    ],
    ids=["library", "print_info"],
)
def test_a_death_at_loading_is_no_wrong_kernel(tmp_path: Path, name: str, what: str) -> None:
    """It is told by name, as what no feature of the CPU can be the cause of."""
    env = planted.death(tmp_path, name)
    child = subprocess.run([*COMMAND, "--json"], capture_output=True, env=env, timeout=300)
    verdict = msgspec.convert(msgspec.json.decode(child.stdout)["found"], Soundness)
    assert child.returncode == 1
    assert verdict.at_load
    assert verdict.problem == f"dies of SIGSEGV while it loads {what}, before a kernel computes"
    with pytest.raises(BackendError, match="cannot be loaded") as caught:
        verdict.require()
    assert "CXX=" in str(caught.value.hint)


@planted.needs_preload
@pytest.mark.parametrize("options", [(), ("--sandbox",)], ids=["serve", "in a sandbox"])
def test_a_worker_proves_what_is_not_proven(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Its first start on a library or a CPU that it does not know proves it, and refuses to serve
    with a sentence and the documented code."""
    env = planted.kernel(tmp_path, "ggml_vec_dot_q5_0_q8_0", "*s = 0.5f;")
    worker = WorkerProcess("serve", "--port", "0", "--log-format", "json", *options, env=env)
    try:
        code = worker.wait(300)
    finally:
        worker.end()
    if "Landlock" in worker.lines[-1]:
        pytest.skip("this system has no Landlock")
    assert (code, worker.lines[-1].split()[1]) == (1, "NOT_PROVEN:"), worker.lines
