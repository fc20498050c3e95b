"""The source distribution of llama-cpp-python, which carries llama.cpp with its tests."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

from worker.files import cache_folder


def llama_cpp() -> Path:
    """The folder of llama.cpp's sources, of the version that is installed; fetched once."""
    name = f"llama_cpp_python-{version('llama-cpp-python')}"
    folder = cache_folder("suites")
    source = folder / name / "vendor/llama.cpp"
    if not source.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:",
             "--dest", folder, name.replace("-", "==")],
            check=True,
        )  # fmt: skip
        with tarfile.open(folder / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return source


def environment(requirements: Path) -> Path:
    """Python with these packages, in the folder beside the sources."""
    place = cache_folder("suites") / requirements.stem
    python = place / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--requirement", requirements],
        check=True,
    )  # fmt: skip
    return python
