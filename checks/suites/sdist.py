"""Source distributions that carry tests, and environments to run them in."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from scripts.install.environment import pinned_version
from scripts.install.source import fetch
from worker.files import cache_folder


def llama_cpp() -> Path:
    """The folder of llama.cpp's sources, of the version that is pinned for llama-cpp-python."""
    version = pinned_version()

    def bring(folder: Path) -> Path:
        return fetch(version, [sys.executable, "-m", "pip"], folder, folder / "log")

    return _kept(f"llama_cpp_python-{version}", bring) / "vendor/llama.cpp"


def unpacked(name: str, version: str) -> Path:
    """The folder of a package's source distribution."""

    def bring(folder: Path) -> Path:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", name,
             "--dest", folder, f"{name}=={version}"],
            check=True,
        )  # fmt: skip
        return next(folder.glob("*.tar.gz"))

    return _kept(f"{name}-{version}", bring)


def _kept(wanted: str, bring: Callable[[Path], Path]) -> Path:
    """A folder of this name in the cache; where it is missing, what is in the archive."""
    known = cache_folder("suites")
    if not (known / wanted).is_dir():
        known.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=known) as name:
            folder = Path(name)
            with tarfile.open(bring(folder)) as archive:
                archive.extractall(folder, filter="data")
            (folder / wanted).rename(known / wanted)
    return known / wanted


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
