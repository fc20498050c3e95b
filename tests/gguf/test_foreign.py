"""A file of another kind is refused with what it is and the next step."""

from __future__ import annotations

import errno
import os
import socket
import struct
from pathlib import Path

import pytest

from tests.support.models import ggufs
from tests.support.models.spoiled import (
    Change,
    Row,
    refused,
    rows,
    small,
    write_spoiled,
)
from worker.model.config import load_config

FOREIGN: list[Row] = [
    ("0-byte file", "EMPTY_FILE", lambda g: b""),
    ("1 byte", "TRUNCATED", lambda g: b"G"),
    ("2 bytes", "TRUNCATED", lambda g: b"GG"),
    ("3 bytes", "TRUNCATED", lambda g: b"GGU"),
    ("exactly GGUF, 4 bytes", "TRUNCATED", lambda g: b"GGUF"),
    *(
        (f"old magic {magic.decode()}", "OLD_GGML", lambda g, magic=magic: magic + bytes(60))
        for magic in (b"ggml", b"ggjt", b"lmgg", b"tjgg", b"fmgg")
    ),
    ("git-lfs pointer", "GIT_LFS_POINTER",
     lambda g: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
    ("HTML error page", "HTML_PAGE", lambda g: b"\n<!DOCTYPE html><html>404</html>"),
    ("SafeTensors file", "SAFETENSORS",
     lambda g: struct.pack("<Q", 20) + b'{"__metadata__":{} }' + bytes(30)),
    ("PyTorch checkpoint", "PYTORCH", lambda g: b"PK\x03\x04" + bytes(60)),
    ("ONNX model", "ONNX", lambda g: b"\x08\x07\x12\x07pytorch" + bytes(60)),
    ("JSON file", "NOT_GGUF", lambda g: b'{"model_type": "llama"}'),
    ("any other file", "NOT_GGUF", lambda g: bytes(range(100))),
]  # fmt: skip


@pytest.mark.parametrize(("code", "change"), rows(FOREIGN))
def test_another_format(code: str, change: Change, tmp_path: Path) -> None:
    """The file is refused with its own code, one sentence and the next step."""
    assert refused(write_spoiled(tmp_path, change)).code == code


@pytest.mark.parametrize("kind", ["directory", "fifo", "socket", "device"])
def test_what_is_no_file_does_not_block(kind: str, tmp_path: Path) -> None:
    """A directory, FIFO, socket or device as the model is refused at once."""
    path = tmp_path / "m.gguf"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        server = socket.socket(socket.AF_UNIX)
        server.bind(os.fspath(path))
        server.close()
    assert refused(path).code == ("DIRECTORY" if kind == "directory" else "NOT_A_FILE")


def test_links(tmp_path: Path) -> None:
    """A link to a file is followed; one to nothing or to itself is refused."""
    small().write(tmp_path / "blob")
    good, dangling, loop = (tmp_path / f"{name}.gguf" for name in ("good", "dangling", "loop"))
    good.symlink_to("blob")
    dangling.symlink_to("nowhere")
    loop.symlink_to("loop.gguf")
    assert load_config(good).layers == 2
    assert "link to nothing" in refused(dangling).message
    assert "back to itself" in refused(loop).message
    assert refused(tmp_path / "absent.gguf").code == "NOT_FOUND"
    assert refused(tmp_path / "nul\0.gguf").code == "NOT_FOUND"


def test_a_directory_says_what_to_pass(tmp_path: Path) -> None:
    """A directory names its one model, or how to make one of the SafeTensors in it."""
    (tmp_path / "config.json").write_text("{}")
    error = refused(tmp_path)
    assert error.code == "SAFETENSORS_DIR"
    assert "convert_hf_to_gguf.py" in str(error)
    ggufs.write_llama(tmp_path / "m.gguf", splits=3)
    assert "m-00001-of-00003.gguf" in str(refused(tmp_path))
    ggufs.write_llama(tmp_path / "other.gguf")
    assert "2 models" in str(refused(tmp_path))


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that this user may not open is refused with that reason."""

    def denied(*_: object, **__: object) -> int:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    assert refused(tmp_path / "m.gguf").code == "UNREADABLE"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the process has no file left to open, the path is not to blame."""

    def full(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", full)
    assert "ulimit -n" in str(refused(tmp_path / "m.gguf").hint)
