"""The source of llama-cpp-python, and the chat templates that llama.cpp ships in it."""

import os
import re
import shutil
import tarfile
import tempfile
from pathlib import Path

from scripts.install.commands import hold_lock, run
from scripts.install.talk import say

NAME = "llama-cpp-python"
# A line of the bindings' requirements. Only their high-level cache imports it, which nothing here
# does; it has an advisory without a fixed version (CVE-2025-69872).
UNUSED = re.compile(r'\s*"diskcache\b')
OPTIONAL = (
    "\nimport diskcache\n",
    "\ntry:\n    import diskcache\nexcept ImportError:\n    diskcache = None\n",
)
TEMPLATE = re.compile(r"[^/]+/vendor/llama\.cpp/models/templates/([\w.+-]+\.jinja)")


def cache_folder() -> Path:
    """Return where this user's builds and templates are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gguf-worker"


def templates_folder(version: str) -> Path:
    """Return where the templates of a version are; tests read them there."""
    return cache_folder() / "templates" / version


def fetch(
    version: str, pip: list[str], folder: Path, log: Path, lock: Path | None = None
) -> Path:  # fmt: skip
    """Download the source into the folder, and keep its templates. Raises InstallError.

    lock: a file for pip with the version and the hash that the source must have
    """
    arguments = ["--no-deps", "--no-binary", NAME, "--dest", str(folder)]
    arguments += (
        ["--require-hashes", "--no-build-isolation", "--requirement", str(lock)]
        if lock
        else [f"{NAME}=={version}"]
    )
    doing = f"Fetching the source of {NAME} {version}"
    run(doing, [*pip, "download", *arguments], log, TMPDIR=str(folder))
    source = next(folder.glob("*.tar.gz"))
    keep_templates(source, templates_folder(version))
    return source


def unpack(source: Path, folder: Path) -> Path:
    """Its files in the folder, without what the bindings ask for and nothing here imports."""
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    (top,) = (each for each in folder.iterdir() if each.is_dir())
    project = top / "pyproject.toml"
    lines = project.read_text().splitlines(keepends=True)
    project.write_text("".join(line for line in lines if not UNUSED.match(line)))
    cache = top / "llama_cpp/llama_cache.py"
    if cache.exists():  # so that the package can be imported without it
        cache.write_text(cache.read_text().replace(*OPTIONAL))
    return top


def keep_templates(source: Path, target: Path) -> None:
    """Put the templates into the folder `target`, all of them or none; what is there stays."""
    with hold_lock(target.parent / "lock", "another install keeps the templates; waiting for it"):
        if target.exists():
            return
        made = Path(tempfile.mkdtemp("", "new-", target.parent))
        try:
            with tarfile.open(source) as archive:
                for entry in archive:
                    found = TEMPLATE.fullmatch(entry.name)
                    if found and (content := archive.extractfile(entry)):
                        (made / found[1]).write_bytes(content.read())
            made.rename(target)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def fetch_templates(version: str, pip: list[str]) -> None:
    """Bring the templates where they are missing: a build was kept, its source was not.

    Raises InstallError.
    """
    place = templates_folder(version).parent
    place.mkdir(parents=True, exist_ok=True)
    say("fetching llama.cpp's chat templates")
    with tempfile.TemporaryDirectory("", "new-", place) as folder:
        fetch(version, pip, Path(folder), place / "fetch.log")
