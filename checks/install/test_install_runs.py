"""Whole runs of the installer with real pip and venv, on a library that compiles in no time."""

from __future__ import annotations

import hashlib
import runpy
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.checkout import BACKEND, PYPROJECT, ROOT, TIMEOUT_S, VERSION, Checkout
from tests.support.programs.processes import until


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout where the installer ran once."""
    checkout = Checkout(tmp_path_factory.mktemp("checkout"))
    said = checkout.install("--backend", "cpu")
    for part in ("creating .venv", "building llama-cpp-python 0.3.36 for cpu", "built in", "ready"):
        assert part in said
    return checkout


def test_one_run_is_enough(installed: Checkout) -> None:
    """The packages can be imported, a second run has nothing to do, nothing half made is left."""
    assert "-DGGML_BLAS=OFF" in installed.cmake_args()
    assert "installed already: llama-cpp-python 0.3.36 for cpu" in installed.install()
    assert installed.install("--quiet") == ""
    assert installed.leftovers() == []
    assert list((installed.root / "worker").rglob("*.pyc"))  # else each start would compile it


def test_two_at_once_build_once_and_a_switch_back_does_not(installed: Checkout) -> None:
    """The second of two waits for the first; each variant is compiled once."""
    both = [installed.start("--rpc", "1") for _ in range(2)]
    said = ""
    for process in both:
        with process:
            said += process.communicate(timeout=TIMEOUT_S)[1]
    assert [process.returncode for process in both] == [0, 0], said
    assert said.count("for cpu + rpc from source") == 1
    assert "-DGGML_RPC=ON" in installed.cmake_args()
    assert "from source" not in installed.install("--backend", "cpu")
    assert "-DGGML_RPC=OFF" in installed.cmake_args()


def test_templates_are_kept_and_fetched_where_only_the_build_was(installed: Checkout) -> None:
    """A build keeps the templates of its source; tests get them beside an older build too."""
    assert installed.templates() == {"one.jinja": "{{ messages }}"}
    shutil.rmtree(installed.cache / "gguf-worker/templates")
    assert "installed already" in installed.install()
    said = installed.install("--extra", "dev")
    assert "fetching llama.cpp's chat templates" in said
    assert "from source" not in said
    assert "proving" not in said  # the same library on the same CPU
    assert installed.templates() == {"one.jinja": "{{ messages }}"}
    assert installed.leftovers() == []
    assert "installed already" in installed.install("--extra", "dev")


def test_a_failed_build_changes_nothing(installed: Checkout) -> None:
    """One line says what to do, and the environment works as before."""
    failure = "Could NOT find Vulkan (missing: glslc)"
    said = installed.install("--backend", "vulkan", code=1, FAKE_FAILURE=failure)
    assert "libvulkan-dev" in said.splitlines()[-1]
    assert installed.leftovers() == []
    assert "installed already: llama-cpp-python 0.3.36 for cpu" in installed.install()


def test_what_fails_the_proof_is_left_out(installed: Checkout) -> None:
    """A library that is not sound on this CPU is built again without the feature that it fails
    with, one after the other; the choice stays, until a backend is chosen anew. Where nothing is
    left that could be the reason, one sentence says what is wrong."""
    folder = ("--venv", ".venv-unsound")
    said = installed.install(*folder, "--backend", "cpu", FAKE_UNSOUND="AVX512 AVX2")
    assert "it computes Q4_K with 1 row wrongly, because of AVX512; trying without AVX-512" in said
    assert "because of AVX2; trying without AVX2" in said
    assert "self-test passed" in said
    assert said.splitlines()[-1].endswith("AVX-512 and AVX2 in .venv-unsound")
    arguments = installed.cmake_args(".venv-unsound")
    for option in ("NATIVE=OFF", "AVX2=OFF", "AVX512=OFF", "AVX512_VNNI=OFF"):
        assert f"-DGGML_{option}" in arguments
    assert "installed already" in installed.install(*folder)
    for options in (("--backend", "cpu"), ()):  # nor is it taken for a good one the next time
        said = installed.install(*folder, *options, code=1, FAKE_UNSOUND="ALWAYS")
        assert "The library is not sound on this CPU: it computes Q4_K" in said.splitlines()[-1]
    said = installed.install(*folder, "--backend", "cpu")
    assert said.splitlines()[-1].endswith("for cpu in .venv-unsound")
    assert installed.leftovers() == []


def test_a_death_at_loading_is_not_built_around(installed: Checkout) -> None:
    """No kernel has run then: one sentence and no other build; the next run tries again."""
    folder = ("--venv", ".venv-dying")
    said = installed.install(*folder, "--backend", "cpu", code=1, FAKE_UNSOUND="LOAD AVX512")
    assert "trying without" not in said
    assert "The library cannot be loaded: it dies of SIGSEGV" in said.splitlines()[-1]
    assert "libstdc++" in said.splitlines()[-1]
    assert "ready after" in installed.install(*folder)


def test_a_proof_that_was_taken_back_is_made_again(installed: Checkout) -> None:
    """After llama.cpp died the worker forgets the proof; the next install proves the library."""
    for file in (installed.root / ".venv/share/gguf-worker/proofs").iterdir():
        file.unlink()
    said = installed.install("--quiet")
    assert "self-test of the library on this CPU" in said
    assert "from source" not in said
    assert installed.install("--quiet") == ""


def test_an_interrupted_build_leaves_nothing(installed: Checkout, tmp_path: Path) -> None:
    """The compiler ends too, its folder goes, and the environment works as before."""
    building = tmp_path / "pid"
    with installed.start("--backend", "blas", FAKE_HANG=str(building)) as process:
        until(lambda: building.exists() and building.read_text() != "", seconds=TIMEOUT_S)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "gguf-worker: interrupted; the same command starts again."
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", building.read_text()], capture_output=True, check=False
    )
    assert state.stdout[:1] in (b"", b"Z"), "the compiler still runs"
    assert installed.leftovers() == []
    assert installed.install("--quiet") == ""


def test_a_locked_install_takes_only_what_it_knows(installed: Checkout, tmp_path: Path) -> None:
    """All comes with the lock's hashes, the source of the library too; a file with another hash is
    refused in one sentence, and extras that are not in the lock are."""
    wheel = tmp_path / "one-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in (
            ("one.py", ""),
            ("one-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: one\nVersion: 1\n"),
            ("one-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n"),
            ("one-1.dist-info/RECORD", ""),
        ):
            archive.writestr(name, text)
    source = installed.packages / f"llama_cpp_python-{VERSION}.tar.gz"
    lock = installed.root / "requirements.lock"

    def write(library: bytes, package: bytes) -> None:
        hashes = [hashlib.sha256(data).hexdigest() for data in (library, package)]
        lock.write_text(
            f"# a comment\nllama-cpp-python=={VERSION} \\\n    --hash=sha256:{hashes[0]}\n"
            f"one==1 ; python_version > '3' \\\n    --hash=sha256:{hashes[1]}\n"
        )

    def asked(*options: str, code: int = 0) -> str:
        links = f"{installed.packages} {tmp_path}"
        folder = ("--venv", ".venv-locked")
        return installed.install(*folder, *options, code=code, PIP_FIND_LINKS=links)

    assert "There is no requirements.lock" in asked("--locked", "1", code=1)
    write(source.read_bytes(), b"another")
    assert "another hash than requirements.lock" in asked("--locked", "1", code=1).splitlines()[-1]
    write(b"another", wheel.read_bytes())
    assert "another hash than requirements.lock" in asked("--locked", "1", code=1).splitlines()[-1]
    write(source.read_bytes(), wheel.read_bytes())
    said = asked("--locked", "1")
    assert "for cpu, locked from source" in said
    python = installed.root / ".venv-locked/bin/python"
    subprocess.run([python, "-c", "import one, worker, llama_cpp"], check=True, timeout=TIMEOUT_S)
    assert "installed already: llama-cpp-python 0.3.36 for cpu, locked" in asked()
    assert "The lock has no packages of the extra dev" in asked("--extra", "dev", code=1)
    assert installed.leftovers() == []
    assert installed.install("--quiet") == ""


def test_a_wheel_from_a_folder_is_not_built(installed: Checkout, tmp_path: Path) -> None:
    """It is installed without a compiler, remembered, and left with a backend; a place without one
    is a sentence that changes nothing."""
    built = next(installed.cache.rglob("*.whl"))
    shutil.copy(built, tmp_path)
    place = ("--venv", ".venv-wheels")
    said = installed.install(*place, GGUF_WORKER_WHEELS=str(tmp_path), CXX="/no/compiler")
    assert f"fetching llama-cpp-python {VERSION} from {tmp_path}" in said
    assert "from source" not in said
    python = installed.root / ".venv-wheels/bin/python"
    subprocess.run([python, "-c", "import worker, llama_cpp"], check=True, timeout=TIMEOUT_S)
    assert "installed already" in installed.install(*place)
    empty = tmp_path / "empty"
    empty.mkdir()
    said = installed.install(*place, code=1, GGUF_WORKER_WHEELS=str(empty))
    assert "`make wheel`" in said.splitlines()[-1]
    assert "installed already" in installed.install(*place)
    assert "for cpu" in installed.install(*place, "--backend", "cpu")


def test_without_a_network_one_sentence(installed: Checkout, tmp_path: Path) -> None:
    """It names the network, not pip's inside."""
    said = installed.install("--backend", "blas", code=1, PIP_FIND_LINKS=str(tmp_path))
    assert "pip could not get a package: check the network" in said.splitlines()[-1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_one_sentence(installed: Checkout) -> None:
    """A log that cannot be written is a sentence, not a traceback."""
    log = installed.root / ".venv/install.log"
    kept = log.rename(log.with_suffix(".kept"))
    log.symlink_to("/dev/full")
    try:
        said = installed.install("--extra", "train", code=1)
    finally:
        kept.replace(log)
    assert "The disk is full" in said.splitlines()[-1]
    assert "Traceback" not in said


def test_a_python_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets one sentence before anything newer is imported."""
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    with pytest.raises(SystemExit, match=r"Python 3\.11 or newer is needed"):
        runpy.run_path(str(ROOT / "scripts/install"), run_name="__main__")


def test_the_fleet_comes_beside_the_worker(installed: Checkout) -> None:
    """It is another distribution, in a folder of its own; what it depends on counts too."""
    folder = installed.root / "fleet"
    folder.mkdir()
    project = folder / "pyproject.toml"
    own = ("gguf_fleet", "1", "gguf-worker", "gguf_fleet")
    (folder / "backend.py").write_text(BACKEND.format(names=own))
    (folder / "gguf_fleet").mkdir()
    project.write_text(PYPROJECT + '[project]\nname = "gguf-fleet"\nversion = "1"\n')
    asked = ("--venv", ".venv-fleet", "--extra", "fleet")
    assert "ready after" in installed.install(*asked)
    python = installed.root / ".venv-fleet" / "bin" / "python"
    listed = subprocess.check_output([python, "-m", "pip", "list"], text=True, timeout=TIMEOUT_S)
    assert {"gguf_fleet", "gguf_worker"} <= set(listed.replace("-", "_").split())
    assert "installed already" in installed.install(*asked)
    project.write_text(project.read_text() + 'dependencies = ["gguf-worker"]\n')
    assert "ready after" in installed.install(*asked)
