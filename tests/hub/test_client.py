"""The Hub's failures as our errors, and the cache's layout; `tests/cli/test_pull.py` pulls."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants, get_session
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

from worker.errors import DiskSpaceError, DownloadError
from worker.hub import client as hub
from worker.hub.cache import RepoCache
from worker.hub.errors import is_passing, translate

OLD, NEW = "a" * 40, "b" * 40


def transport(name: str) -> Exception:
    """An exception of the HTTP library that the client uses."""
    library = type(get_session()).__module__.partition(".")[0]
    kind: type[Exception] = getattr(import_module(library), name)
    return kind("broken")


def status(code: int) -> HfHubHTTPError:
    """An answer of the Hub that the client raises."""
    library: Any = sys.modules[type(get_session()).__module__.partition(".")[0]]
    request = library.Request("GET", "http://hub/x")
    return HfHubHTTPError("no", response=library.Response(code, request=request))


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (status(429), True), (status(503), True), (status(408), True),
        (status(416), True), (status(404), False), (status(403), False), (status(501), False),
        (transport("ReadError"), True), (transport("ReadTimeout"), True),
        (transport("RemoteProtocolError"), True), (transport("ConnectError"), False),
        (transport("ConnectTimeout"), False), (transport("UnsupportedProtocol"), False),
        (OSError("Consistency check failed: file should be"), True),
        (OSError(errno.ENOSPC, "full"), False), (ValueError("x"), False),
    ],
    ids=str,
)  # fmt: skip
def test_which_failures_pass(error: Exception, passing: bool) -> None:
    """Busy and broken connections are tried again; a refusal and a missing network are not."""
    assert is_passing(error) is passing


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OfflineModeIsEnabled("off"), "OFFLINE"), (status(429), "RATE_LIMITED"),
        (status(500), "HUB_FAILED"), (status(407), "HUB_UNREACHABLE"),
        (status(511), "HUB_UNREACHABLE"), (status(416), "DOWNLOAD_FAILED"),
        (status(403), "REPO_NOT_FOUND"),
        (transport("ReadTimeout"), "HUB_UNREACHABLE"),
        (OSError("Consistency check failed"), "DOWNLOAD_FAILED"),
    ],
    ids=str,
)  # fmt: skip
def test_each_failure_has_its_sentence(error: Exception, code: str) -> None:
    """Every failure of the client is a DownloadError with a next step."""
    found = translate(error, "org/repo", "main", "m.gguf")
    assert isinstance(found, DownloadError)
    assert found.code == code
    assert found.hint


def test_a_full_disk_and_foreign_errors() -> None:
    """A full disk is an error of its own; an error that is not the Hub's stays as it is."""
    assert isinstance(translate(OSError(errno.ENOSPC, "full"), "r", "main"), DiskSpaceError)
    foreign = ValueError("x")
    assert translate(foreign, "r", "main") is foreign


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RepoCache:
    """An empty cache of one repository."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return RepoCache("org/repo")


def blob_of(cache: RepoCache, name: str) -> Path:
    """Bytes as they lie in the cache before they have a name."""
    blob = cache.blob(name)
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(name.encode())
    return blob


def test_a_published_file_is_a_link_to_its_bytes(cache: RepoCache) -> None:
    """The link is relative, so that the cache can be moved as a whole."""
    path = cache.publish(blob_of(cache, "1"), NEW, "sub/m.gguf")
    assert path == cache.folder / "snapshots" / NEW / "sub" / "m.gguf"
    assert path.readlink() == Path("../../../blobs/1")
    assert path.read_bytes() == b"1"
    assert cache.publish(blob_of(cache, "1"), NEW, "sub/m.gguf") == path


def test_without_links_the_bytes_lie_there_themselves(
    cache: RepoCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the disk or the user allows no links, the file itself gets the name."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", True)
    path = cache.publish(blob_of(cache, "1"), NEW, "m.gguf")
    assert not path.is_symlink()
    assert path.read_bytes() == b"1"


def test_the_revisions_commit_is_preferred(cache: RepoCache) -> None:
    """The commit that the branch stands for, or another one where that lacks a file."""
    old = cache.publish(blob_of(cache, "1"), OLD, "m.gguf")
    assert cache.find("main", ("m.gguf",)) == old
    cache.set_revision("main", NEW)
    assert cache.find("main", ("m.gguf",)) == old
    new = cache.publish(blob_of(cache, "2"), NEW, "m.gguf")
    os.utime(new.parents[0], (0, 0))
    assert cache.find("main", ("m.gguf",)) == new
    assert cache.find(OLD, ("m.gguf",)) == old
    assert cache.find("main", ("m.gguf", "n.gguf")) is None
    assert cache.models("main") == (new.parent, {"m.gguf": 1})


def test_a_link_without_bytes_does_not_count(cache: RepoCache) -> None:
    """A file whose blob was deleted is not here, nor is a snapshot that leads nowhere."""
    blob = blob_of(cache, "1")
    pointer = cache.publish(blob, NEW, "m.gguf")
    blob.unlink()
    pointer.parent.with_name(OLD).symlink_to("nowhere")
    assert cache.find("main", ("m.gguf",)) is None
    assert cache.models("main")[1] == {}


def test_files_that_do_not_come_over_http(tmp_path: Path) -> None:
    """A file larger than the Hub sends is not begun; the error says how to get it."""
    size = constants.MAX_HTTP_DOWNLOAD_SIZE + 1
    file = hub.HubFile(repo="o/r", path="m.gguf", commit=NEW, size=size, checksum="0" * 64)
    with pytest.raises(DownloadError) as caught:
        hub.download(file, tmp_path / "blob", lambda _: None, lambda _: None)
    assert caught.value.code == "TOO_LARGE"
    assert "hf download o/r m.gguf" in (caught.value.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_both_kinds_of_checksum(tmp_path: Path) -> None:
    """sha256 of large files, git's hash of others; a wrong size or bit is found by either."""
    path = tmp_path / "m"
    path.write_bytes(b"hello")
    sums = (
        hashlib.sha256(b"hello").hexdigest(),
        "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0",  # git hash-object
    )
    for checksum in sums:
        file = hub.HubFile(repo="o/r", path="m", commit=NEW, size=5, checksum=checksum)
        seen: list[int] = []
        assert hub.is_right(file, path, seen.append)
        assert seen == [5]
        path.write_bytes(b"hellO")
        assert not hub.is_right(file, path, seen.append)
        path.write_bytes(b"hello, too long")
        assert not hub.is_right(file, path, seen.append)
        path.write_bytes(b"hello")
