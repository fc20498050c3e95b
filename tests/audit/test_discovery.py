"""Which files are meant by the names of files and folders."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.models import ggufs
from worker.audit.discovery import Candidate, candidates
from worker.errors import ModelFileError, UsageError


def names(*paths: Path) -> list[str]:
    """The names of the candidates' files."""
    return [each.path.name for each in found(*paths)]


def found(*paths: Path) -> list[Candidate]:
    """The candidates of these paths."""
    return candidates([str(path) for path in paths], Path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two models, one of them split, and what else lies about."""
    top = tmp_path / "models"
    (top / "inner").mkdir(parents=True)
    ggufs.write_llama(top / "b.gguf")
    ggufs.write_llama(top / "inner" / "a.gguf", splits=3)
    (top / "._b.gguf").write_bytes(b"\0\5\26\7")
    (top / "notes.txt").write_text("no model")
    return top


def test_folders_are_searched(folder: Path) -> None:
    """Models in folders in it count, a split one once; other files do not."""
    assert names(folder) == ["b.gguf", "a-00001-of-00003.gguf"]
    sizes = {each.path.name: each.size for each in found(folder)}
    assert sizes["b.gguf"] == (folder / "b.gguf").stat().st_size
    parts = sum(path.stat().st_size for path in (folder / "inner").iterdir())
    assert sizes["a-00001-of-00003.gguf"] == parts


def test_all_parts_named_are_one_model(folder: Path) -> None:
    """As a shell's `*.gguf` names them; a part whose first file is not named is judged itself."""
    parts = sorted((folder / "inner").iterdir())
    assert names(*reversed(parts)) == ["a-00001-of-00003.gguf"]
    assert names(*parts[1:]) == ["a-00002-of-00003.gguf", "a-00003-of-00003.gguf"]


def test_links(folder: Path, tmp_path: Path) -> None:
    """Links to folders are followed, in circles too; a second name of a file is left out."""
    (folder / "up").symlink_to("..")
    (folder / "also.gguf").symlink_to("b.gguf")
    (folder / "nowhere.gguf").symlink_to("gone")
    assert names(folder) == ["also.gguf", "nowhere.gguf", "a-00001-of-00003.gguf"]
    assert names(tmp_path) == ["also.gguf", "nowhere.gguf", "a-00001-of-00003.gguf"]
    assert names(folder, folder) == names(folder)
    assert names(folder / "b.gguf", folder / "b.gguf") == ["b.gguf", "b.gguf"]


def test_folders_without_models(folder: Path, tmp_path: Path) -> None:
    """A folder that was named and has none is an error of its own, as if it were opened."""
    for path in (folder / "b.gguf", folder / "._b.gguf"):
        path.unlink()
    shutil.rmtree(folder / "inner")
    (empty,) = found(folder)
    assert isinstance(empty.error, ModelFileError)
    assert empty.error.code == "DIRECTORY"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(folder: Path) -> None:
    """It is told; the others are searched."""
    (folder / "inner").chmod(0)
    try:
        assert names(folder) == ["b.gguf", "inner"]
    finally:
        (folder / "inner").chmod(0o700)


def test_a_folder_that_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be listed is a candidate with the reason."""
    list_folder = os.scandir

    def failing(path: str) -> object:
        if Path(path).name == "inner":
            raise PermissionError(13, "Permission denied", path)
        return list_folder(path)

    monkeypatch.setattr(os, "scandir", failing)
    *_, inner = found(folder)
    assert isinstance(inner.error, ModelFileError)
    assert inner.error.code == "UNREADABLE"


def test_a_name_of_no_model() -> None:
    """What a name cannot be resolved to is the candidate's error; the others stay."""

    def resolve(text: str) -> Path:
        if text == "gone":
            raise UsageError("There is no such model.", code="UNKNOWN_MODEL")
        return Path(text)

    first, second = candidates(["gone", "there.gguf"], resolve)
    assert isinstance(first.error, UsageError)
    assert second.error is None
