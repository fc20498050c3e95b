"""Files whose bytes are read: what is found in the weights, and files that change meanwhile."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tests.support.cases import for_each
from tests.support.models import ggufs
from tests.support.models.ggufs import TYPE_BY_NAME, Gguf
from worker.audit.discovery import Candidate
from worker.audit.verdict import FileVerdict, judge
from worker.audit.weights import check_numbers, read_weights
from worker.errors import ModelFileError
from worker.gguf.quant import ENCODINGS
from worker.gguf.splits import open_header


def nothing(_count: int) -> None:
    """Nobody counts."""


def deep(path: Path) -> FileVerdict:
    """The verdict after all bytes were read."""
    return judge(Candidate(path=path), deep=True, entries=(), count=nothing)


def spoil(gguf: Gguf, name: str, at: int, data: bytes) -> None:
    """Write bytes over those of a tensor."""
    tensor = gguf.tensor(name)
    tensor.data = tensor.data[:at] + data + tensor.data[at + len(data) :]


@for_each("encoding", ["F32", "F16", "BF16", *ggufs.QUANTIZED])
def test_a_sound_model_is_good(encoding: str, tmp_path: Path) -> None:
    """Nothing is found in weights as they should be, of any encoding."""
    verdict = deep(ggufs.write_llama(tmp_path / "m.gguf", encoding=encoding))
    assert (verdict.ok, verdict.weights_read, verdict.tensors) == (True, True, ())
    assert verdict.checksum == "unknown"


def test_not_finite_by_tensor(tmp_path: Path) -> None:
    """Each tensor is named with its counts; the first one's place is the error's."""
    gguf = ggufs.llama_gguf(encoding="Q4_K")
    block = ENCODINGS[TYPE_BY_NAME["Q4_K"]].nbytes
    nan, infinite = np.float16(np.nan).tobytes(), np.float16(-np.inf).tobytes()
    spoil(gguf, "blk.0.attn_q.weight", 3 * block, nan)
    spoil(gguf, "blk.0.attn_q.weight", 5 * block + 2, infinite)
    spoil(gguf, "blk.1.ffn_norm.weight", 8, np.float32(np.inf).tobytes())
    path = gguf.write(tmp_path / "m.gguf")
    verdict = deep(path)
    assert (verdict.ok, verdict.code, verdict.field) == (False, "NOT_FINITE", "blk.0.attn_q.weight")
    places = {tensor.name: tensor.offset for tensor in open_header(path).tensors}
    assert verdict.offset == places["blk.0.attn_q.weight"] + 3 * block
    found = {tensor.name: (tensor.nan, tensor.infinite) for tensor in verdict.tensors}
    assert found == {"blk.0.attn_q.weight": (1, 1), "blk.1.ffn_norm.weight": (0, 1)}
    assert verdict.message is not None
    assert "blk.0.attn_q.weight (1 NaN, 1 infinite, Q4_K)" in verdict.message


def test_too_large(tmp_path: Path) -> None:
    """A scale that is finite and absurd is an error of its own."""
    gguf = ggufs.llama_gguf(encoding="Q8_0")
    spoil(gguf, "output.weight", 0, np.float16(1000.0).tobytes())
    verdict = deep(gguf.write(tmp_path / "m.gguf"))
    assert (verdict.ok, verdict.code, verdict.field) == (False, "WEIGHT_TOO_LARGE", "output.weight")
    assert [(tensor.large, tensor.largest) for tensor in verdict.tensors] == [(1, 128_000.0)]


def test_many_tensors_make_one_sentence(tmp_path: Path) -> None:
    """Three are named, the others counted."""
    gguf = ggufs.llama_gguf()
    for tensor in gguf.tensors:
        tensor.data = b"\xff" * len(tensor.data)
    verdict = deep(gguf.write(tmp_path / "m.gguf"))
    assert verdict.message is not None
    assert verdict.message.endswith(f"and {len(gguf.tensors) - 3} more.")
    assert len(verdict.tensors) == len(gguf.tensors)


def test_a_later_file_of_a_split_model(tmp_path: Path) -> None:
    """What is found in the second file is told with that file's name and its own offset."""
    gguf = ggufs.llama_gguf()
    last = str(gguf.tensors[-1].name)
    spoil(gguf, last, 4, np.float32(np.nan).tobytes())
    path = ggufs.write_split(tmp_path / "m.gguf", gguf, 3)
    verdict = deep(path)
    assert verdict.files == 3
    assert verdict.bytes == sum(file.stat().st_size for file in tmp_path.iterdir())
    (odd,) = verdict.tensors
    assert odd.file == str(tmp_path / "m-00003-of-00003.gguf")
    raw = Path(odd.file).read_bytes()
    assert np.isnan(np.frombuffer(raw, "<f4", 1, odd.offset)[0])


@pytest.mark.parametrize("how", ["cut", "written", "replaced"])
def test_a_file_that_changes_meanwhile(how: str, tmp_path: Path) -> None:
    """It is an error of the file, not a signal, whenever it happens."""
    path = ggufs.write_llama(tmp_path / "m.gguf", embedding=256, feed_forward=2048)

    def change(_count: int) -> None:
        if how == "cut":
            os.truncate(path, 1000)
        elif how == "written":
            with path.open("r+b") as file:
                file.write(b"GGUF")
        else:
            (tmp_path / "new").write_bytes(b"new")
            (tmp_path / "new").replace(path)

    verdict = judge(Candidate(path=path), deep=True, entries=(), count=change)
    if how == "replaced":  # the one that was opened is read to its end
        assert verdict.ok
    else:
        assert not verdict.ok
        assert verdict.code == ("TRUNCATED" if how == "cut" else "CHANGED")


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Of 192 MB of weights a megabyte or two is held at a time."""
    path = ggufs.sparse_llama(tmp_path / "m.gguf", feed_forward=8192, embedding=2048, layers=1)
    header = open_header(path)
    assert header.identity.size > 192 << 20
    tracemalloc.start()
    try:
        assert read_weights(header, [[]], numbers=True, count=nothing) == []
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_no_odd_tensor_is_no_error() -> None:
    """`check_numbers` raises for odd ones only."""
    check_numbers([])


def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read error is told with its place."""
    path = ggufs.write_llama(tmp_path / "m.gguf")

    def failing(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(ModelFileError) as caught:
        read_weights(open_header(path), [[]], numbers=True, count=nothing)
    assert caught.value.code == "UNREADABLE"
    assert caught.value.offset == open_header(path).tensors[0].offset
