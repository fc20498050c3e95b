"""The source distribution of llama-cpp-python, which carries llama.cpp with its tests."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from scripts.install.environment import pinned_version
from scripts.install.source import fetch
from worker.files import cache_folder


def llama_cpp() -> Path:
    """The folder of llama.cpp's sources, of the version that is pinned; fetched once."""
    known, wanted = cache_folder("suites"), f"llama_cpp_python-{pinned_version()}"
    source = known / wanted / "vendor/llama.cpp"
    if not source.is_dir():
        known.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip"]
        with tempfile.TemporaryDirectory(dir=known) as name:
            folder = Path(name)
            with tarfile.open(fetch(pinned_version(), pip, folder, folder / "log")) as archive:
                archive.extractall(folder, filter="data")
            (folder / wanted).rename(known / wanted)
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
