"""A file of a block is believed only if every byte is as it was written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from worker.cache.block_file import file_bytes, key_of, parse_name, read, write

IDENTITY = bytes(range(32))
BEFORE = b"b" * 16
TOKENS = np.arange(5, dtype="<i4").tobytes()
KEY = key_of("rows", BEFORE, TOKENS)
BODY = np.arange(40, dtype=np.uint8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with the rows of five tokens, 8 bytes each."""
    path = tmp_path / KEY.name
    write(path, IDENTITY, KEY, TOKENS, BODY, used=123_456_789_000)
    return path


def test_what_was_written_is_read(path: Path) -> None:
    """The body comes back in memory of its own; the file is private and as old as was said."""
    body = read(path, IDENTITY, KEY, TOKENS, 8)
    assert np.array_equal(body, BODY)
    assert body.flags.owndata
    status = path.stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_mtime_ns == 123_456_789_000
    assert status.st_size == file_bytes(KEY, 40)
    assert list(path.parent.iterdir()) == [path]


def test_an_empty_body(tmp_path: Path) -> None:
    """Where all layers are recurrent, a block has no rows; its file still says its tokens."""
    path = tmp_path / KEY.name
    write(path, IDENTITY, KEY, TOKENS, np.empty(0, np.uint8), used=1)
    assert read(path, IDENTITY, KEY, TOKENS, 0).size == 0


def test_every_flipped_byte_is_seen(path: Path) -> None:
    """There is no byte in the file that may be another one."""
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1 :])
        with pytest.raises(ValueError, match="checksum"):
            read(path, IDENTITY, KEY, TOKENS, 8)
    path.write_bytes(good)
    read(path, IDENTITY, KEY, TOKENS, 8)


def test_every_other_length_is_seen(path: Path) -> None:
    """A file that is cut anywhere, or goes on, is not believed."""
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(ValueError, match="length"):
            read(path, IDENTITY, KEY, TOKENS, 8)
    path.write_bytes(good + b"x")
    with pytest.raises(ValueError, match="length"):
        read(path, IDENTITY, KEY, TOKENS, 8)


def test_a_rest_may_have_any_length_but_the_one_it_says(tmp_path: Path) -> None:
    """The length of a rest is not known beforehand: the file's header tells it."""
    key = key_of("rest", BEFORE, TOKENS)
    path = tmp_path / key.name
    write(path, IDENTITY, key, TOKENS, BODY, used=1)
    assert np.array_equal(read(path, IDENTITY, key, TOKENS, 8), BODY)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="checksum"):
        read(path, IDENTITY, key, TOKENS, 8)


def test_other_tokens_models_and_kinds_are_refused(path: Path) -> None:
    """A file is for one model, one prefix, these tokens and one kind, whatever its name says."""
    other_tokens = np.array([0, 1, 2, 3, 5], "<i4").tobytes()
    with pytest.raises(ValueError, match="says about itself"):
        read(path, IDENTITY, KEY, other_tokens, 8)
    with pytest.raises(ValueError, match="says about itself"):
        read(path, IDENTITY[::-1], KEY, TOKENS, 8)
    with pytest.raises(ValueError, match="says about itself"):
        read(path, IDENTITY, key_of("rows", b"c" * 16, TOKENS), TOKENS, 8)
    with pytest.raises(ValueError, match="says about itself"):
        read(path, IDENTITY, key_of("rest", BEFORE, TOKENS), TOKENS, 8)
    with pytest.raises(ValueError, match="length"):
        read(path, IDENTITY, KEY, TOKENS, 16)


def test_links_pipes_and_folders_are_not_read(path: Path, tmp_path: Path) -> None:
    """Only a plain file is read, and nothing makes the reader wait."""
    link = tmp_path / "link"
    link.symlink_to(path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (link, pipe, tmp_path, tmp_path / "nothing"):
        with pytest.raises(OSError, match=r"."):
            read(place, IDENTITY, KEY, TOKENS, 8)


def test_names() -> None:
    """A name says the key; anything else is no name of ours."""
    assert parse_name(KEY.name) == KEY
    for name in (
        "", "rows", KEY.name + "x", "x" + KEY.name, KEY.name.upper(), f".{KEY.name}.12.partial",
        KEY.name.replace("-5.", "-0."), KEY.name.replace("-5.", "-65."),
        KEY.name.replace("-5.", "-05."), KEY.name.replace("rows", "row"), KEY.name + "\n",
        KEY.name.replace("-5.", "-٥."),
    ):  # fmt: skip
        assert parse_name(name) is None, name
