"""Files that were checked lead to the same bytes for as long as they are pinned."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.models import ggufs
from worker.errors import ModelFileError
from worker.gguf.source import pin
from worker.model.config import load_config


def cut(path: Path) -> None:
    os.truncate(path, 5000)


def replace(path: Path) -> None:
    ggufs.write_llama(path.with_name("n.gguf"), seed=1).rename(path)


def write(path: Path) -> None:
    os.utime(path, (1, 1))


@pytest.mark.parametrize(
    ("change", "how"),
    [(cut, "became shorter"), (replace, "was replaced"), (write, "replaced or written")],
)
def test_a_file_that_changes_is_noticed(
    tmp_path: Path, change: Callable[[Path], None], how: str
) -> None:
    """A file cut, replaced or written after it was checked is refused."""
    path = ggufs.write_llama(tmp_path / "m.gguf")
    files = load_config(path).files
    with pin(files):
        pass
    change(path)
    with pytest.raises(ModelFileError, match=how) as caught, pin(files):
        raise AssertionError("not reached")
    assert caught.value.code == "CHANGED"


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    """A file removed after it was checked is not found."""
    path = ggufs.write_llama(tmp_path / "m.gguf")
    files = load_config(path).files
    path.unlink()
    with pytest.raises(ModelFileError) as caught, pin(files):
        raise AssertionError("not reached")
    assert caught.value.code == "NOT_FOUND"


@pytest.mark.parametrize("change", [cut, write])
def test_a_file_that_is_written_inside_of_the_block(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """What was read while the file was written is not what was checked."""
    path = ggufs.write_llama(tmp_path / "m.gguf")
    files = load_config(path).files
    with pytest.raises(ModelFileError) as caught, pin(files):
        change(path)
    assert caught.value.code == "CHANGED"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_a_pinned_file_outlives_its_name(tmp_path: Path) -> None:
    """What is renamed over a checked file does not change what its pinned path leads to."""
    path = ggufs.write_llama(tmp_path / "m.gguf", splits=2)
    config = load_config(path)
    before = [Path(file.path).read_bytes() for file in config.files]
    with pin(config.files) as paths:
        replace(path)
        assert [Path(name).read_bytes() for name in paths] == before
    assert not Path(paths[0]).exists()
