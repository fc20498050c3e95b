"""Quantising with the real llama.cpp: results, refusals, and what an interruption leaves."""

from __future__ import annotations

import os
import signal
import struct
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.support.models import ggufs
from worker import files as disk
from worker.demo import MODEL_PATH
from worker.errors import BackendError, DiskSpaceError, ModelFileError, UsageError
from worker.gguf.imatrix import read_imatrix
from worker.gguf.quant import FILE_TYPES
from worker.gguf.splits import open_header
from worker.llama.quantize.plan import TYPES, QuantizeOptions, plan, type_named
from worker.llama.quantize.target import quantize
from worker.model.config import load_config

WIDTH, INNER = 256, 512


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama in F32 whose rows hold whole blocks of every encoding."""
    path = tmp_path_factory.mktemp("source") / "f32.gguf"
    return ggufs.write_llama(path, embedding=WIDTH, feed_forward=INNER)


def sums_of(source: Path) -> dict[str, np.ndarray]:
    """Random sums of squares for each matrix of a model but the embedding."""
    rng = np.random.default_rng(0)
    return {
        tensor.name: rng.random(tensor.shape[0], dtype=np.float32) * 100
        for tensor in open_header(source).tensors
        if len(tensor.shape) == 2 and tensor.name != "token_embd.weight"
    }


def write_imatrix(path: Path, sums: dict[str, np.ndarray], count: float = 7) -> Path:
    """The matrix as llama-imatrix writes it today."""
    gguf = ggufs.Gguf(
        {
            "general.type": ggufs.text("imatrix"),
            "imatrix.datasets": ggufs.array(ggufs.STR, ["texts.txt"]),
            "imatrix.chunk_count": ggufs.u32(3),
            "imatrix.chunk_size": ggufs.u32(512),
        },
        [],
    )
    for name, values in sums.items():
        for suffix, data in ((".in_sum2", values), (".counts", np.full(1, count, np.float32))):
            gguf.tensors.append(
                ggufs.Tensor(name + suffix, (data.size, 1), ggufs.TYPE_BY_NAME["F32"],
                             data.astype("<f4").tobytes())
            )  # fmt: skip
    return gguf.write(path)


def write_legacy_imatrix(path: Path, sums: dict[str, np.ndarray], calls: int = 7) -> Path:
    """The same in the format before GGUF."""
    data = struct.pack("<i", len(sums))
    for name, values in sums.items():
        data += struct.pack("<i", len(name)) + name.encode()
        data += struct.pack("<ii", calls, values.size) + values.astype("<f4").tobytes()
    data += struct.pack("<ii", 3, len("texts.txt")) + b"texts.txt"
    path.write_bytes(data)
    return path


@pytest.fixture(scope="module")
def imatrix(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A matrix for the source."""
    return write_imatrix(tmp_path_factory.mktemp("imatrix") / "imatrix.gguf", sums_of(source))


PLAIN = ("BF16", "Q5_1", "Q4_K_M", "IQ4_XS", "TQ1_0")  # one of each sort
GUIDED = ("IQ2_XXS", "Q2_K_S")


@pytest.mark.parametrize("label", PLAIN + GUIDED)
def test_the_plan_is_what_is_made(label: str, source: Path, imatrix: Path, tmp_path: Path) -> None:
    """Encodings and size are known before, to the byte but for the header's own two keys."""
    options = QuantizeOptions(imatrix=imatrix if label in GUIDED else None)
    target = tmp_path / "made.gguf"
    planned = plan(source, label, options=options)
    made = quantize(source, target, label, threads=2, options=options)
    config = load_config(target)
    assert config.quant == label
    assert config.mix == planned.mix == made.mix
    assert config.size_bytes == planned.weights_bytes
    assert config.bits_per_weight == pytest.approx(planned.bits_per_weight)
    assert made.file_bytes == target.stat().st_size
    assert abs(planned.file_bytes - made.file_bytes) <= 512
    assert [path.name for path in tmp_path.iterdir()] == ["made.gguf"]


def test_names_of_types() -> None:
    """Any case of letters, llama-quantize's short names, and all types that llama.cpp can make."""
    assert type_named("q4_k_m") == type_named("Q4_K") == "Q4_K_M"
    assert set(TYPES) == {label for label, _ in FILE_TYPES.values()} - {"NVFP4"}
    with pytest.raises(UsageError, match="no quant level 'Q4_X'"):
        type_named("Q4_X")


def test_progress_goes_up_to_one(source: Path, tmp_path: Path) -> None:
    """The share done grows with each tensor and ends at 1."""
    seen: list[float] = []
    quantize(source, tmp_path / "m.gguf", "Q8_0", threads=1, on_progress=seen.append)
    assert len(seen) == len(open_header(source).tensors)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1)


def test_the_matrix_changes_the_weights_and_is_told(
    source: Path, imatrix: Path, tmp_path: Path
) -> None:
    """Both formats of the same matrix give the same bytes, other ones than without; the file
    says which matrix it was, by its name and not by its path."""
    legacy = write_legacy_imatrix(tmp_path / "imatrix.gguf", sums_of(source))
    assert not legacy.read_bytes().startswith(b"GGUF")
    made: list[bytes] = []
    for number, matrix in enumerate((imatrix, legacy, None)):
        target = tmp_path / f"{number}.gguf"
        quantize(source, target, "Q4_K_S", threads=2, imatrix=matrix)
        made.append(target.read_bytes())
    assert made[0] == made[1]
    assert made[0] != made[2]
    keys = open_header(tmp_path / "0.gguf").keys
    assert keys["quantize.imatrix.file"] == "imatrix.gguf"
    assert keys["quantize.imatrix.dataset"] == "texts.txt"
    assert keys["quantize.imatrix.chunks_count"] == 3
    assert keys["quantize.imatrix.entries_count"] == len(sums_of(source))


def test_the_matrix_is_averaged(tmp_path: Path) -> None:
    """Sums are divided by their counts; where nothing was counted all columns weigh alike."""
    sums = {"a": np.array([2, 4, 6], np.float32)}
    (values,) = read_imatrix(write_imatrix(tmp_path / "i", sums, count=2)).entries.values()
    assert values.tolist() == [1, 2, 3]
    (values,) = read_imatrix(write_imatrix(tmp_path / "i", sums, count=0)).entries.values()
    assert values.tolist() == [1, 1, 1]
    (values,) = read_imatrix(write_legacy_imatrix(tmp_path / "i", sums, 2)).entries.values()
    assert values.tolist() == [1, 2, 3]


def test_the_matrix_name_is_cut_as_text(source: Path, tmp_path: Path) -> None:
    """A name longer than what fits into the key is cut between letters, not within one."""
    matrix = write_imatrix(tmp_path / f"{'x' * 126}{chr(0xE4)}.gguf", sums_of(source))
    quantize(source, tmp_path / "m.gguf", "Q4_0", threads=2, imatrix=matrix)
    assert open_header(tmp_path / "m.gguf").keys["quantize.imatrix.file"] == "x" * 126


@pytest.mark.parametrize("label", ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS",
                                   "Q2_K_S"])  # fmt: skip
def test_types_that_need_a_matrix(label: str, source: Path, tmp_path: Path) -> None:
    """Without one they are refused before anything is written, with the next step."""
    with pytest.raises(UsageError) as caught:
        quantize(source, tmp_path / "m.gguf", label, threads=1)
    assert caught.value.code == "NEEDS_IMATRIX"
    assert "--imatrix" in (caught.value.hint or "")
    assert plan(source, label).needs_imatrix
    assert list(tmp_path.iterdir()) == []


def test_a_matrix_that_does_not_cover_the_model(source: Path, tmp_path: Path) -> None:
    """A tensor that needs an importance and has none is named; so is one of another shape."""
    sums = sums_of(source)
    del sums["blk.1.ffn_up.weight"]
    partial = write_imatrix(tmp_path / "partial.gguf", sums)
    with pytest.raises(UsageError, match=r"has none for blk\.1\.ffn_up\.weight\."):
        quantize(source, tmp_path / "m.gguf", "IQ2_XS", threads=1, imatrix=partial)
    sums["blk.1.ffn_up.weight"] = np.ones(WIDTH * 2, np.float32)
    other = write_imatrix(tmp_path / "other.gguf", sums)
    with pytest.raises(UsageError, match=r"512 values for blk\.1\.ffn_up\.weight, not 256"):
        quantize(source, tmp_path / "m.gguf", "Q4_K_M", threads=1, imatrix=other)


@pytest.mark.parametrize(
    "content",
    [b"", b"\1\0\0\0", b"GGUF", b"not a matrix at all", struct.pack("<ii", 1, 1 << 30),
     struct.pack("<iiciii", 1, 1, b"a", 1, 1 << 28, 0)],
)  # fmt: skip
def test_what_is_no_matrix(content: bytes, source: Path, tmp_path: Path) -> None:
    """Any other file is refused. A declared length is not allocated before it is checked."""
    matrix = tmp_path / "matrix"
    matrix.write_bytes(content)
    with pytest.raises(ModelFileError):
        quantize(source, tmp_path / "m.gguf", "Q4_K_M", threads=1, imatrix=matrix)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_matrix_with_odd_numbers(value: float, source: Path, tmp_path: Path) -> None:
    """NaN and infinity are refused with the tensor's name."""
    sums = sums_of(source)
    sums["blk.0.ffn_up.weight"][3] = value
    matrix = write_imatrix(tmp_path / "imatrix.gguf", sums)
    with pytest.raises(ModelFileError, match=r"blk\.0\.ffn_up\.weight that is no finite number"):
        plan(source, "Q4_K_M", options=QuantizeOptions(imatrix=matrix))


def test_quantising_twice_must_be_wanted(source: Path, tmp_path: Path) -> None:
    """A quantised source is refused, unless it is allowed or nothing would be converted."""
    eight = tmp_path / "eight.gguf"
    quantize(source, eight, "Q8_0", threads=2)
    with pytest.raises(UsageError) as caught:
        quantize(eight, tmp_path / "four.gguf", "Q4_0", threads=2)
    assert caught.value.code == "ALREADY_QUANTIZED"
    options = QuantizeOptions(allow_requantize=True)
    quantize(eight, tmp_path / "four.gguf", "Q4_0", threads=2, options=options)
    assert load_config(tmp_path / "four.gguf").quant == "Q4_0"
    quantize(eight, tmp_path / "again.gguf", "Q8_0", threads=2)
    assert load_config(tmp_path / "again.gguf").mix == load_config(eight).mix


def test_switches(source: Path) -> None:
    """`pure` makes one encoding of all matrices; the output matrix can be left as it is."""
    matrices = {name for name in plan(source, "Q4_K_M").mix if name != "F32"}
    assert matrices == {"Q4_K", "Q6_K"}
    assert set(plan(source, "Q4_K_M", options=QuantizeOptions(pure=True)).mix) == {"Q4_K", "F32"}
    left = plan(source, "Q4_K_M", options=QuantizeOptions(leave_output_tensor=True))
    header = open_header(source)
    output = next(tensor for tensor in header.tensors if tensor.name == "output.weight")
    before = plan(source, "Q4_K_M").mix["F32"].elements
    assert left.mix["F32"].elements == before + output.elements


def test_rows_that_no_block_divides_fall_back(tmp_path: Path) -> None:
    """Where rows are too short for an encoding the plan says what llama.cpp takes instead."""
    source = ggufs.write_llama(tmp_path / "narrow.gguf", embedding=64, feed_forward=96)
    planned = plan(source, "Q4_K_M")
    assert "Q4_K" not in planned.mix
    made = quantize(source, tmp_path / "m.gguf", "Q4_K_M", threads=1)
    assert made.mix == planned.mix


def test_a_split_model_becomes_one_file(tmp_path: Path) -> None:
    """All parts are read, and the result is one file."""
    parts = ggufs.write_llama(tmp_path / "parts.gguf", splits=2)
    whole = ggufs.write_llama(tmp_path / "whole.gguf")
    quantize(parts, tmp_path / "a.gguf", "Q8_0", threads=1)
    quantize(whole, tmp_path / "b.gguf", "Q8_0", threads=1)
    header = open_header(tmp_path / "a.gguf")
    assert not [key for key in header.keys if key.startswith("split.")]
    assert load_config(tmp_path / "a.gguf").mix == load_config(tmp_path / "b.gguf").mix


def test_targets_that_cannot_be_meant(source: Path, tmp_path: Path) -> None:
    """The target may not be the source under any name, nor a folder, nor, unasked, a file."""
    model = tmp_path / "model.gguf"
    model.write_bytes(source.read_bytes())
    link = tmp_path / "link.gguf"
    link.symlink_to(model)
    for target, part in (
        (model, "is the source itself"),
        (link, "is the source itself"),
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "m.gguf", "no folder"),
    ):
        with pytest.raises(UsageError, match=part):
            quantize(model, target, "Q8_0", threads=1, replace=True)
    assert model.read_bytes() == source.read_bytes()
    taken = tmp_path / "taken.gguf"
    taken.write_bytes(b"mine")
    with pytest.raises(UsageError, match="exists already"):
        quantize(model, taken, "Q8_0", threads=1)
    assert taken.read_bytes() == b"mine"
    quantize(model, taken, "Q8_0", threads=1, replace=True)
    assert load_config(taken).quant == "Q8_0"


def test_sources_that_are_no_whole_model(source: Path, tmp_path: Path) -> None:
    """The loader judges the source before native code sees it."""
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(source.read_bytes()[:-1])
    with pytest.raises(ModelFileError, match=r"output\.weight|ends"):
        quantize(cut, tmp_path / "m.gguf", "Q8_0", threads=1)
    vocabulary = ggufs.llama_gguf()
    vocabulary.tensors = []
    with pytest.raises(UsageError, match="vocabulary"):
        quantize(vocabulary.write(tmp_path / "v.gguf"), tmp_path / "m.gguf", "Q8_0", threads=1)


def test_room_is_checked_before(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that has no room is not begun."""
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 1000)  # pyright: ignore
    with pytest.raises(DiskSpaceError, match=r"m\.gguf needs .* 1000 B are free"):
        quantize(source, tmp_path / "m.gguf", "Q8_0", threads=1)
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_no_text(source: Path, tmp_path: Path) -> None:
    """A file's name need not be UTF-8."""
    model = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.gguf"))
    model.write_bytes(source.read_bytes())
    target = Path(os.fsdecode(os.fsencode(tmp_path) + b"/th\xe9.gguf"))
    quantize(model, target, "Q8_0", threads=1)
    assert load_config(target).quant == "Q8_0"


def children() -> list[int]:
    """Processes that this one started."""
    found: list[int] = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.append(int(status.parent.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="finds the process in /proc")
def test_a_dying_quantiser_is_an_error_here(tmp_path: Path) -> None:
    """When native code is killed, we get an error, and no file is left."""
    before = set(children())

    def kill() -> None:
        """As soon as it is there: where this waits for a word of it, it may have ended."""
        while not (new := set(children()) - before):
            time.sleep(0.005)
        for child in new:
            os.kill(child, signal.SIGABRT)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with pytest.raises(BackendError, match="died of SIGABRT while it quantized") as caught:
        quantize(MODEL_PATH, tmp_path / "m.gguf", "Q4_K_M", threads=1)
    killer.join()
    assert caught.value.code == "NATIVE_DEATH"
    assert list(tmp_path.iterdir()) == []


def test_giving_up_in_between_leaves_nothing(tmp_path: Path) -> None:
    """An exception out of the progress callback ends the quantiser and removes what it wrote."""

    def give_up(share: float) -> None:
        assert (tmp_path / "m.gguf").exists() is False
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(MODEL_PATH, tmp_path / "m.gguf", "Q4_K_M", threads=1, on_progress=give_up)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that not even root can write")
def test_a_folder_that_cannot_be_written_is_named_first(source: Path) -> None:
    """The folder is tried before anything is computed, and the message names it, not the file."""
    with pytest.raises(UsageError, match=r"^/proc/self cannot be written to: "):
        quantize(source, Path("/proc/self/m.gguf"), "Q4_K_M", threads=1)


def test_a_name_of_255_bytes_is_written(source: Path, tmp_path: Path) -> None:
    """The name that the file has until it is whole is no longer than a name may be."""
    target = tmp_path / ("ü" * 125 + ".gguf")
    quantize(source, target, "Q8_0", threads=1)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
