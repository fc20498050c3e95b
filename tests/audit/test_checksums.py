"""Checksums that the Hub's cache or a catalogue knows, held against the bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from tests.support.models import ggufs
from tests.support.models.projectors import projector_gguf
from worker.audit.discovery import Candidate
from worker.audit.verdict import FileVerdict, judge
from worker.gguf.split_name import all_files
from worker.hub.catalog import Entry
from worker.hub.checksum import promises

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ENTRY = Entry(repo="org/tiny-GGUF", license="mit", parameters=1, context=1,
              quants=("F32",), file="tiny.{QUANT}.gguf")  # fmt: skip


def judged(path: Path, *entries: Entry) -> FileVerdict:
    """The verdict once all bytes were read."""
    read: list[int] = []
    verdict = judge(Candidate(path=path), deep=True, entries=entries, count=read.append)
    files = [path.with_name(name) for name in all_files(path.name)]
    if verdict.checksum in ("right", "wrong"):
        assert sum(read) == sum(file.stat().st_size for file in files)
    return verdict


def entry(**sums: str) -> Entry:
    """The catalogue's entry with checksums by file; `__` stands for a dot."""
    return msgspec.structs.replace(
        ENTRY, sha256={name.replace("__", "."): value for name, value in sums.items()}
    )


def cached(home: Path, *, git: bool = False, name: str = "tiny.F32.gguf") -> Path:
    """A model in the Hub client's cache, as that lays it out; `git`: outside of large files."""
    data = ggufs.llama_gguf().encode()
    checksum = hashlib.sha256(data).hexdigest()
    if git:
        checksum = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    repo = home / "models--org--tiny-GGUF"
    blob, pointer = repo / "blobs" / checksum, repo / "snapshots" / COMMIT / name
    blob.parent.mkdir(parents=True)
    pointer.parent.mkdir(parents=True)
    blob.write_bytes(data)
    pointer.symlink_to(Path("../..") / "blobs" / checksum)
    return pointer


@pytest.mark.parametrize("git", [False, True])
def test_the_name_of_a_blob(git: bool, tmp_path: Path) -> None:
    """The cache calls bytes by their checksum: right is told, a changed bit is found."""
    path = cached(tmp_path, git=git)
    assert (judged(path).ok, judged(path).checksum) == (True, "right")
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.resolve().write_bytes(data)
    verdict = judged(path)
    assert (verdict.ok, verdict.checksum, verdict.code) == (False, "wrong", "WRONG_CHECKSUM")
    assert verdict.message is not None
    assert "the Hub's cache says" in verdict.message


def test_the_catalogue_knows_the_cache(tmp_path: Path) -> None:
    """An entry counts for its own repository's files in the cache, for each file by its path."""
    path = cached(tmp_path)
    good = path.resolve().name
    assert judged(path, entry(tiny__F32__gguf=good)).ok
    verdict = judged(path, entry(tiny__F32__gguf="0" * 64))
    assert (verdict.ok, verdict.code) == (False, "WRONG_CHECKSUM")
    assert verdict.message is not None
    assert "the catalogue says" in verdict.message
    other = msgspec.structs.replace(entry(tiny__F32__gguf="0" * 64), repo="org/other")
    assert judged(path, other).ok


def test_the_catalogue_knows_a_file_by_its_name(tmp_path: Path) -> None:
    """Outside of the cache the name counts, unless entries disagree about it."""
    path = ggufs.write_llama(tmp_path / "tiny.F32.gguf")
    good = hashlib.sha256(path.read_bytes()).hexdigest()
    assert judged(path, entry(tiny__F32__gguf=good)).checksum == "right"
    assert judged(path, entry(tiny__F32__gguf="0" * 64)).checksum == "wrong"
    both = (entry(tiny__F32__gguf=good), entry(tiny__F32__gguf="0" * 64))
    assert judged(path, *both).checksum == "unknown"
    assert judged(path, entry(another__gguf=good)).checksum == "unknown"


def test_all_files_of_a_split_model(tmp_path: Path) -> None:
    """The checksum is right where it is known of all files, wrong where one of them is."""
    path = ggufs.write_llama(tmp_path / "m.gguf", splits=2)
    sums = {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        for name in all_files(path.name)
    }
    whole = msgspec.structs.replace(ENTRY, sha256=sums)
    assert judged(path, whole).checksum == "right"
    first, second = sums
    half = msgspec.structs.replace(ENTRY, sha256={first: sums[first]})
    assert judged(path, half).checksum == "unknown"
    wrong = msgspec.structs.replace(ENTRY, sha256={**sums, second: "0" * 64})
    assert judged(path, wrong).checksum == "wrong"


def test_files_that_are_no_models_have_checksums_too(tmp_path: Path) -> None:
    """A projector's numbers are not looked at; its bytes are."""
    path = projector_gguf().write(tmp_path / "mmproj.gguf")
    read: list[int] = []
    known = entry(mmproj__gguf=hashlib.sha256(path.read_bytes()).hexdigest())
    candidate = Candidate(path=path, found=True)
    verdict = judge(candidate, deep=True, entries=(known,), count=read.append)
    assert (verdict.ok, verdict.code, verdict.checksum) == (True, "MMPROJ", "right")
    assert not verdict.weights_read
    assert sum(read) == path.stat().st_size


def test_a_folder_called_blobs_promises_nothing(tmp_path: Path) -> None:
    """Only a name that is a checksum is taken for one."""
    path = tmp_path / "blobs" / "tiny.gguf"
    assert list(promises(path, ())) == []
