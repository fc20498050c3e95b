"""A Hub on loopback and a machine that pulls from it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.models import ggufs
from tests.support.models.projectors import projector_gguf
from tests.support.programs.hub import Hub, running
from tests.support.programs.pulling import CATALOG, REPO, Machine
from worker.demo import MODEL_PATH
from worker.gguf.split_name import all_files


@pytest.fixture
def hub() -> Generator[Hub]:
    """A Hub with one repository: two encodings, one split, a projector and a page."""
    with running() as hub:
        yield hub


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The repository's files."""
    folder = tmp_path_factory.mktemp("content")
    files: dict[str, bytes] = {"README.md": b"# tiny", "mmproj-F16.gguf": projector_gguf().encode()}
    for label in ("Q4_0", "Q8_0", "F16"):
        path = ggufs.write_llama(folder / f"tiny.{label}.gguf", encoding=label)
        files[path.name] = path.read_bytes()
    first = ggufs.write_llama(folder / "tiny-F32.gguf", splits=2)
    for name in all_files(first.name):
        files[name] = (folder / name).read_bytes()
    return files


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the cache and the user's own catalogue lie."""
    (tmp_path / "own.toml").write_text(CATALOG)
    return tmp_path


@pytest.fixture
def machine(hub: Hub, home: Path, content: dict[str, bytes]) -> Machine:
    """A machine that has nothing yet, and a Hub that has the repository."""
    hub.files[REPO] = dict(content)
    return Machine(hub, home)


@pytest.fixture
def large(machine: Machine) -> Machine:
    """The same with the demo model as its Q8_0: large enough to be interrupted."""
    machine.hub.files[REPO]["tiny.Q8_0.gguf"] = MODEL_PATH.read_bytes()
    return machine
