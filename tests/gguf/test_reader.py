"""The reader against gguf.GGUFReader, and its own arithmetic."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.models import ggufs
from worker.errors import ModelFileError
from worker.gguf import source
from worker.gguf.header import TYPES, Header, Value
from worker.gguf.reader import read_header
from worker.gguf.strings import PADDING, StringArray, scan

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "worker/demo/demo-5m-f16.gguf"
# GGUFReader takes seconds for a larger one, which has nothing of another kind.
VOCABS = [
    path
    for path in sorted((ROOT / "../shared/vocabs").resolve().glob("*.gguf"))
    if path.stat().st_size < 3 << 20
]
needs_vocabs = pytest.mark.skipif(not VOCABS, reason="the folder ../shared/vocabs is missing")
VOCAB_PARAMS = [pytest.param(path, id=path.stem) for path in VOCABS] or [
    pytest.param(None, id="none")
]


def many_keys() -> ggufs.Gguf:
    """A model with thousands of vendor keys of all types."""
    model = ggufs.llama_gguf()
    for index in range(4096):
        model.keys[f"vendor.x-{index}.value_{index}"] = (
            ggufs.u32(index), ggufs.f32(index / 3), ggufs.text(f"wört {index}"),
            ggufs.Key(ggufs.BOOL, index % 2), ggufs.Key(ggufs.I64, -index),
            ggufs.Key(ggufs.F64, float("nan")), ggufs.Key(ggufs.U64, 2**63 + index),
            ggufs.array(ggufs.I16, [1, -2, index]), ggufs.array(ggufs.STR, ["", "a", "é" * 200]),
            ggufs.array(ggufs.BOOL, [0, 1]), ggufs.array(ggufs.F32, []),
        )[index % 11]  # fmt: skip
    return model


GENERATED: dict[str, Callable[[], ggufs.Gguf]] = {
    **{
        kind: lambda kind=kind: ggufs.llama_gguf(encoding=kind, layers=1)
        for kind in ("F32", "F16", "BF16", *ggufs.QUANTIZED)
        if hasattr(gguf.GGMLQuantizationType, kind)
    },
    "byte-level tokenizer": lambda: ggufs.llama_gguf(vocab="bpe"),
    "experts": lambda: ggufs.llama_gguf(experts=4),
    "4096 vendor keys": many_keys,
    "split 1": lambda: ggufs.split(ggufs.llama_gguf(), 3)[0],
    "split 2": lambda: ggufs.split(ggufs.llama_gguf(), 3)[1],
    "alignment 64": lambda: ggufs.Gguf(
        {**ggufs.llama_gguf().keys, "general.alignment": ggufs.u32(64)},
        ggufs.llama_gguf().tensors,
        alignment=64,
    ),
}


def whole_file(path: Path, mode: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Stands in for np.memmap: GGUFReader makes a view per value, 2.6 times faster on this."""
    return np.fromfile(path, np.uint8)


def assert_same(path: Path) -> None:
    """Our header of the file at `path` says what gguf.GGUFReader says."""
    gc.disable()  # GGUFReader makes millions of objects, none of them garbage
    try:
        with mock.patch.object(np, "memmap", whole_file):
            theirs = gguf.GGUFReader(path)
        ours = read_header(path)
        fields = {name: f for name, f in theirs.fields.items() if not name.startswith("GGUF.")}
        assert list(ours.keys) == list(fields)
        for name, field in fields.items():
            assert ours.types[name] == int(field.types[0])
            assert_same_value(ours.keys[name], field)
        assert [tensor.name for tensor in ours.tensors] == [t.name for t in theirs.tensors]
        for tensor, their in zip(ours.tensors, theirs.tensors, strict=True):
            assert tensor.shape == tuple(int(length) for length in their.shape)
            assert (tensor.type, tensor.elements, tensor.nbytes, tensor.offset) == (
                int(their.tensor_type), int(their.n_elements), int(their.n_bytes),
                int(their.data_offset),
            )  # fmt: skip
        assert ours.alignment == theirs.alignment
        if ours.tensors:
            assert ours.files[0].data_offset == theirs.data_offset
    finally:
        gc.enable()


def assert_same_value(value: Value, field: gguf.ReaderField) -> None:
    """A value of ours is GGUFReader's, in type and content."""
    if isinstance(value, StringArray):
        assert field.types[1] == gguf.GGUFValueType.STRING
        assert value.raw_list() == [bytes(field.parts[index]) for index in field.data]
    elif isinstance(value, np.ndarray):
        parts: list[Any] = [field.parts[index] for index in field.data]
        theirs = np.concatenate(parts) if parts else np.empty(0, value.dtype)
        assert value.dtype == theirs.dtype
        assert value.tobytes() == theirs.tobytes()
    else:
        theirs = field.contents()
        assert type(value) is type(theirs)
        assert value == theirs or (value != value and theirs != theirs)


@needs_vocabs
@pytest.mark.parametrize("path", VOCAB_PARAMS)
def test_reads_a_published_vocabulary_like_gguf(path: Path) -> None:
    """Every key of a published vocabulary file is what gguf.GGUFReader reads."""
    assert_same(path)


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in GENERATED.items()])
def test_reads_a_generated_file_like_gguf(make: Callable[[], ggufs.Gguf], tmp_path: Path) -> None:
    """Every key and tensor of each kind of generated file is what gguf.GGUFReader reads."""
    assert_same(make().write(tmp_path / "model.gguf"))


@pytest.mark.skipif(not DEMO.exists(), reason="the demo model is not there")
def test_reads_the_demo_model_like_gguf() -> None:
    """Every key and tensor of the demo model is what gguf.GGUFReader reads."""
    assert_same(DEMO)


def test_reads_a_type_that_gguf_does_not_know(tmp_path: Path) -> None:
    """A Q2_0 tensor, newer than gguf-py, has 64 elements in 18 bytes."""
    header = read_header(ggufs.write_llama(tmp_path / "m.gguf", encoding="Q2_0"))
    tensor = header.tensors[0]
    assert tensor.nbytes == tensor.elements // 64 * 18


TEXTS = st.lists(
    st.one_of(st.binary(max_size=12), st.just(b""), st.binary(min_size=250, max_size=300),
              st.just(bytes(20)), st.integers(0, 70_000).map(bytes)),
    max_size=40,
)  # fmt: skip


@given(texts=TEXTS, repeat=st.sampled_from((1, 50)), before=st.binary(max_size=9))
@settings(max_examples=150, deadline=None)
def test_finds_strings_whatever_they_hold(texts: list[bytes], repeat: int, before: bytes) -> None:
    """Empty strings, NULs, long strings and any mix of them are found at their places."""
    texts = texts * repeat
    packed = StringArray.of(texts)
    starts, end = scan(before + packed.data, len(before), len(texts))
    assert end == len(before) + len(packed.data) - PADDING
    again = StringArray(packed.data, starts - len(before) + 8)
    assert again.raw_list() == texts
    assert [again.raw(index) for index in range(len(texts))] == texts
    assert again.has_nul() == any(b"\0" in text for text in texts)


@given(texts=TEXTS, cut=st.integers(1, 400))
@settings(max_examples=100, deadline=None)
def test_stops_at_the_string_that_is_cut_off(texts: list[bytes], cut: int) -> None:
    """Where the bytes end too early, only the strings that are whole are found."""
    packed = StringArray.of(texts)
    data = packed.data[: max(0, len(packed.data) - PADDING - cut)]
    starts, end = scan(data, 0, len(texts))
    whole = StringArray(data[:end] + bytes(PADDING), starts + 8).raw_list()
    assert whole == texts[: len(whole)]
    assert end <= len(data)
    assert len(whole) < len(texts) or not texts


@given(texts=TEXTS)
@settings(max_examples=100, deadline=None)
def test_finds_texts_and_duplicates(texts: list[bytes]) -> None:
    """`find` gives the first place of a text, `duplicate` the second place of one."""
    packed = StringArray.of(texts)
    wanted = [*texts[:5], b"absent", b"\xff"]
    assert packed.find(wanted) == {text: texts.index(text) for text in wanted if text in texts}
    again = packed.duplicate()
    repeats = [i for i, text in enumerate(texts) if text and text in texts[:i]]
    assert again == (repeats[0] if repeats else None)


@pytest.mark.parametrize("index", range(4))
def test_a_failing_disk_is_an_error(
    index: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An I/O error or an early end at any read is a typed error."""
    path = ggufs.write_llama(tmp_path / "m.gguf")
    reads = iter(range(100))

    def pread(fd: int, size: int, offset: int) -> bytes:
        number = next(reads)
        if number == index:
            raise OSError(5, "Input/output error")
        return read(fd, min(size, 2000), offset)

    read = os.pread
    monkeypatch.setattr(source.os, "pread", pread)
    with pytest.raises(ModelFileError) as caught:
        read_header(path)
    assert caught.value.code == "UNREADABLE"

    def short(fd: int, size: int, offset: int) -> bytes:
        return read(fd, min(size, 2000), offset) if offset < index * 2000 else b""

    monkeypatch.setattr(source.os, "pread", short)
    with pytest.raises(ModelFileError) as caught:
        read_header(path)
    assert caught.value.code == "TRUNCATED"


def test_reads_on_in_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header longer than one read gives the same result."""
    path = many_keys().write(tmp_path / "m.gguf")
    whole = read_header(path)
    monkeypatch.setattr(source, "_FIRST_READ", 100)
    monkeypatch.setattr(source, "_AT_ONCE", 0)
    pieces = read_header(path)
    assert pieces.tensors == whole.tensors
    assert list(pieces.keys) == list(whole.keys)
    assert _tokens(pieces).raw_list() == _tokens(whole).raw_list()


def test_large_numbers_do_not_wrap(tmp_path: Path) -> None:
    """Two tensors whose sizes add up to 2^64 are refused, not wrapped around."""
    model = ggufs.llama_gguf()
    for name in ("a", "b"):
        model.tensors.append(ggufs.Tensor(name, (0x7FFFFFFFFFFFFFC0,), 24, b""))
    with pytest.raises(ModelFileError) as caught:
        read_header(model.write(tmp_path / "m.gguf"))
    assert caught.value.code == "TRUNCATED"
    assert isinstance(caught.value.limit, int)
    assert caught.value.limit > 2**62


def test_the_header_keeps_no_file_open(tmp_path: Path) -> None:
    """After reading, no descriptor of the file is left and its values are usable."""
    path = ggufs.write_llama(tmp_path / "m.gguf")
    before = open_files()
    header = read_header(path)
    after = open_files()
    path.unlink()
    assert after <= before
    assert _tokens(header)[1] == "<s>"


def open_files() -> set[Path]:
    """This process's descriptors, where the system lists them."""
    folder = Path("/proc/self/fd")
    return set(folder.iterdir()) if folder.is_dir() else set()


def _tokens(header: Header) -> StringArray:
    tokens = header.keys["tokenizer.ggml.tokens"]
    assert isinstance(tokens, StringArray)
    assert header.types["tokenizer.ggml.tokens"] == TYPES["ARRAY"]
    return tokens
