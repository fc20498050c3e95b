"""Split files are one model; parts that do not belong together are refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.models import ggufs
from tests.support.models.ggufs import I32, U16, Gguf, Key, text, u32
from tests.support.models.native import LOADED, judge
from worker.errors import ModelFileError
from worker.gguf.splits import open_header
from worker.model.config import load_config

Parts = list[Gguf]


def write_parts(folder: Path, parts: Parts) -> Path:
    """Write the parts under their proper names; returns the first."""
    paths = [
        folder / f"m-{number:05d}-of-{len(parts):05d}.gguf" for number in range(1, len(parts) + 1)
    ]
    for path, part in zip(paths, parts, strict=True):
        part.write(path)
    return paths[0]


def refused(path: Path) -> ModelFileError:
    """The error that loading `path` raises."""
    with pytest.raises(ModelFileError) as caught:
        load_config(path)
    return caught.value


def test_split_files_are_one_model(tmp_path: Path) -> None:
    """A model in three files has the config that it has in one, except for its list of files."""
    whole = load_config(ggufs.write_llama(tmp_path / "one.gguf"))
    first = ggufs.write_llama(tmp_path / "many.gguf", splits=3)
    split = load_config(first)
    assert [Path(file.path).name for file in split.files] == [
        f"many-0000{number}-of-00003.gguf" for number in (1, 2, 3)
    ]
    assert (split.n_params, split.size_bytes) == (whole.n_params, whole.size_bytes)
    assert (split.mix, split.tokenizer) == (whole.mix, whole.tokenizer)
    tensors = open_header(first).tensors
    assert {tensor.file for tensor in tensors} == {0, 1, 2}
    for tensor in tensors:
        raw = Path(split.files[tensor.file].path).read_bytes()
        data = ggufs.llama_gguf().tensor(tensor.name).data
        assert raw[tensor.offset : tensor.offset + tensor.nbytes] == data


def test_llama_cpp_runs_what_we_accept(tmp_path: Path) -> None:
    """Split files that we accept load and run in llama.cpp, by links as well."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    first = ggufs.write_llama(blobs / "m.gguf", splits=2)
    for path in sorted(blobs.iterdir()):
        # The Hub's cache is made of links out of the folder to files without a name.
        blob = path.rename(blobs / f"{len(path.name)}{path.name[3:8]}")
        (snapshot / path.name).symlink_to(blob)
    linked = snapshot / first.name
    assert load_config(linked).layers == 2
    with judge() as native:
        assert native.try_file(linked) == LOADED


def test_one_of_one_is_no_split(tmp_path: Path) -> None:
    """A count of one needs no name and no siblings."""
    part = ggufs.split(ggufs.llama_gguf(), 1)[0]
    assert load_config(part.write(tmp_path / "any.gguf")).layers == 2


def drop_file(number: int) -> Callable[[Path], None]:
    """Remove part `number`."""
    return lambda first: first.with_name(f"m-{number:05d}-of-00003.gguf").unlink()


def test_missing_siblings(tmp_path: Path) -> None:
    """A missing file is named, and how many are missing."""
    first = write_parts(tmp_path, ggufs.split(ggufs.llama_gguf(), 3))
    drop_file(2)(first)
    error = refused(first)
    assert error.code == "SPLIT_MISSING"
    assert "m-00002-of-00003.gguf" in error.message


def test_a_later_part_names_the_first(tmp_path: Path) -> None:
    """A part other than the first is refused, and the error names the file to pass."""
    first = write_parts(tmp_path, ggufs.split(ggufs.llama_gguf(), 3))
    error = refused(first.with_name("m-00002-of-00003.gguf"))
    assert error.code == "NOT_FIRST_SPLIT"
    assert str(first) in str(error)


def test_the_name_pattern_decides(tmp_path: Path) -> None:
    """A first part under another name is refused, as llama.cpp could not find the others."""
    first = write_parts(tmp_path, ggufs.split(ggufs.llama_gguf(), 3))
    for name in ("m.gguf", "m-00001-of-00004.gguf", "m-00002-of-00003-x.gguf"):
        other = tmp_path / name
        other.write_bytes(first.read_bytes())
        assert refused(other).code == "SPLIT_NAME"


def other_count(parts: Parts) -> None:
    """The second part of another number of files."""
    parts[1].keys["split.count"] = Key(U16, 4)


def wrong_order(parts: Parts) -> None:
    """The second and third part in each other's place."""
    parts[1], parts[2] = parts[2], parts[1]


def wrong_total(parts: Parts) -> None:
    """One tensor more than there are."""
    parts[0].keys["split.tensors.count"] = Key(I32, 99)


def no_total(parts: Parts) -> None:
    """Without a number of tensors."""
    parts[0].drop("split.tensors.count")


def twice(parts: Parts) -> None:
    """A tensor of the first part in the second as well."""
    parts[1].tensors.append(replace(parts[0].tensors[0]))


def other_model(parts: Parts) -> None:
    """The third part of another architecture."""
    parts[2].keys["general.architecture"] = text("qwen2")


def without_number(parts: Parts) -> None:
    """The second part without its number."""
    parts[1].drop("split.no")


def wide_number(parts: Parts) -> None:
    """The number in a type on which llama.cpp asserts."""
    parts[1].keys["split.no"] = u32(1)


def zero(parts: Parts) -> None:
    """A count of 0."""
    parts[0].keys["split.count"] = Key(U16, 0)


def enormous(parts: Parts) -> None:
    """A count of 65,535."""
    parts[0].keys["split.count"] = Key(U16, 65_535)


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (other_count, "SPLIT_MISMATCH"),
        (wrong_order, "SPLIT_MISMATCH"),
        (wrong_total, "SPLIT_MISMATCH"),
        (no_total, "MISSING_KEY"),
        (twice, "DUPLICATE_TENSOR"),
        (other_model, "SPLIT_MISMATCH"),
        (without_number, "SPLIT_MISMATCH"),
        (wide_number, "WRONG_TYPE"),
        (zero, "SPLIT_MISMATCH"),
        (enormous, "SPLIT_MISMATCH"),
    ],
)
def test_parts_that_do_not_belong_together(
    spoil: Callable[[Parts], None], code: str, tmp_path: Path
) -> None:
    """Parts that contradict each other are refused."""
    parts = ggufs.split(ggufs.llama_gguf(), 3)
    spoil(parts)
    assert refused(write_parts(tmp_path, parts)).code == code


def test_a_truncated_sibling(tmp_path: Path) -> None:
    """A part that is cut short is refused as cut short."""
    first = write_parts(tmp_path, ggufs.split(ggufs.llama_gguf(), 3))
    last = first.with_name("m-00003-of-00003.gguf")
    os.truncate(last, last.stat().st_size - 1000)
    assert refused(first).code == "TRUNCATED"


def test_every_bit_of_the_split_keys(tmp_path: Path) -> None:
    """Whichever bit of a split's keys is flipped: we refuse it, or llama.cpp survives it."""
    parts = ggufs.split(ggufs.llama_gguf(layers=1, vocab_size=300), 2)
    first = write_parts(tmp_path, parts)
    bad: list[tuple[str, int]] = []
    with judge() as native:
        assert native.try_file(first) == LOADED
        for path in (first, first.with_name("m-00002-of-00002.gguf")):
            data = path.read_bytes()
            begin = data.index(b"split.no") - 8
            end = data.index(b"split.tensors.count") + 19 + 8
            for bit in range(begin * 8, end * 8, 3):
                spoiled = bytearray(data)
                spoiled[bit // 8] ^= 1 << bit % 8
                path.write_bytes(spoiled)
                try:
                    load_config(first)
                except ModelFileError:
                    continue
                if native.try_file(first).startswith("SIG"):
                    bad.append((path.name, bit))
            path.write_bytes(data)
    assert bad == []
