"""The wheels of `make wheel`, in an environment where nothing can be compiled.

GGUF_WORKER_WHEELS names their folder. Other packages come from the environment of the tests.
"""

from __future__ import annotations

import json
import os
import platform
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import http
from tests.support.programs.processes import Server, WorkerProcess
from worker.llama.variants import TOLD

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("GGUF_WORKER_WHEELS") or "/nowhere")
LIBRARY = next(iter(FOLDER.glob("llama_cpp_python-*manylinux*.whl")), None)
WORKER = next(iter(FOLDER.glob("gguf_worker-*.whl")), None)
TIMEOUT_S = 240.0

pytestmark = pytest.mark.skipif(
    LIBRARY is None or WORKER is None,
    reason="GGUF_WORKER_WHEELS names no folder with the wheels of `make wheel`",
)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with both wheels."""
    place = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    programs = place / "bin"
    assert LIBRARY is not None
    assert WORKER is not None
    command = [sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet"]
    command += ["--disable-pip-version-check", "--no-deps", "--no-index", LIBRARY, WORKER]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    packages = next(place.glob("lib/python*/site-packages"))
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()))
    return programs


def world(bare: Path, **variables: str) -> dict[str, str]:
    """Variables for a process that finds the environment's programs, and no compiler."""
    return {"PATH": str(bare), "HOME": str(bare.parent), **variables}


def said(bare: Path, *command: str, **variables: str) -> str:
    """What a program of the environment writes; it must succeed."""
    name, *arguments = command
    done = subprocess.run(
        [bare / name, *arguments], env=world(bare, **variables), cwd=bare.parent,
        capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "load_backend" not in done.stderr, "llama.cpp's log is not taken"
    return done.stdout


def able(bare: Path) -> list[str]:
    """The variants that run here, the best first."""
    code = (
        "from worker.llama import library, variants\n"
        "print(*(each.name for each in variants.rank_variants(library.FOLDER)))"
    )
    return said(bare, "python", "-c", code).split()


def test_it_holds_all_that_it_needs() -> None:
    """Variants from the least CPU on, and libgomp, are in a wheel with a manylinux tag."""
    assert LIBRARY is not None
    with zipfile.ZipFile(LIBRARY) as archive:
        names = {Path(name).name for name in archive.namelist()}
    least = {"x86_64": "x64", "aarch64": "armv8.0_1"}[platform.machine()]
    assert f"libggml-cpu-{least}.so" in names
    assert len([name for name in names if name.startswith("libggml-cpu-")]) >= 8
    assert any(name.startswith("libgomp-") for name in names)


def test_the_best_variant_is_in_use(bare: Path) -> None:
    """`worker version` names it, and its features are in use."""
    report = json.loads(said(bare, "worker", "version", "--json"))
    assert report["build"]["variant"] == able(bare)[0]
    assert "OPENMP = 1" in report["build"]["system_info"]
    assert f"CPU variant: {able(bare)[0]};" in said(bare, "worker", "version")


def test_every_variant_computes(bare: Path) -> None:
    """Each one that runs here goes on with a text, and all begin alike."""
    texts = {
        name: said(
            bare, "worker", "generate", "--raw", "Once upon a time", "--max-tokens", "8",
            "--temperature", "0", **{TOLD: name},
        )
        for name in able(bare)
    }  # fmt: skip
    assert len(texts) >= 2
    assert len(set(texts.values())) == 1, texts


def test_quantised_weights_in_every_variant(bare: Path, tmp_path: Path) -> None:
    """llama.cpp's quantiser runs, and each variant computes with what it wrote."""
    target = tmp_path / "q4.gguf"
    model = ROOT / "worker/demo/demo-5m-f16.gguf"
    said(bare, "worker", "quantize", str(model), str(target), "Q4_0")
    for name in able(bare):
        text = said(bare, "worker", "generate", "--raw", "--model", str(target), "Once upon a time",
                    "--max-tokens", "8", "--temperature", "0", **{TOLD: name})  # fmt: skip
        assert text.strip(), name


def test_it_serves(bare: Path) -> None:
    """A worker starts and answers."""
    options = ("serve", "--port", "0", "--log-format", "json")
    process = WorkerProcess(*options, env=world(bare), command=[str(bare / "worker")])
    try:
        process.wait_for("ready")
        server = Server.over(process)
        answer = http.post(
            server.url + "/v1/completions", json={"prompt": "Once upon", "max_tokens": 4}
        )
        assert answer.status_code == 200
    finally:
        process.end()


def test_waiting_threads_are_steered(bare: Path) -> None:
    """The rules of spinning hold with the libgomp inside the wheel."""
    code = (
        "from worker.llama import library; from worker.llama.process import openmp\n"
        "import pathlib; gomp = openmp._libgomp(); print(pathlib.Path(gomp._name).parent.name)"
    )
    assert said(bare, "python", "-c", code).strip() == "llama_cpp_python.libs"
    tests = (f"tests/llama/test_{name}.py" for name in ("spin", "variants", "backends"))
    done = subprocess.run(
        [bare / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        env=world(bare), cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
