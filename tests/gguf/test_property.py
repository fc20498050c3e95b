"""The property: a spoiled file is refused by us, or ends without a signal in llama.cpp.

Every truncation and every single-bit flip of the metadata of a small model. By default a sample of
the bits is tried; with EXHAUSTIVE=1 all of them. `checks/fuzz` does the rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.models import ggufs
from tests.support.models.ggufs import Gguf
from tests.support.models.native import LOADED, REFUSED, Judge, judge
from worker.errors import ModelFileError
from worker.model.config import load_config

EXHAUSTIVE = bool(os.environ.get("EXHAUSTIVE"))
STRIDE = 1 if EXHAUSTIVE else 101  # prime to 8, so that all bits of a byte come up


@pytest.fixture(scope="module")
def native() -> Generator[Judge]:
    """A child process with llama.cpp."""
    with judge() as child:
        yield child


def tiny(**options: Any) -> Gguf:
    """The smallest file that runs."""
    sizes: dict[str, Any] = {
        "layers": 1, "embedding": 32, "heads": 2, "kv_heads": 1, "feed_forward": 32,
        "vocab_size": 300, "tied": True,
    }  # fmt: skip
    return ggufs.llama_gguf(**(sizes | options))


def accepted(path: Path) -> bool:
    """Whether we accept the file. A refusal must be a ModelFileError and come within a second."""
    start = time.process_time()
    try:
        load_config(path)
    except ModelFileError:
        return False
    finally:
        assert time.process_time() - start < 1.0
    return True


def survives(path: Path, native: Judge) -> bool:
    """Whether we refuse the file, or llama.cpp ends without a signal."""
    return not accepted(path) or native.try_file(path) in (LOADED, REFUSED)


@pytest.mark.parametrize("vocab", ["spm", "bpe"])
def test_single_bits(vocab: Literal["spm", "bpe"], tmp_path: Path, native: Judge) -> None:
    """Whichever bit of the metadata is flipped: we refuse the file, or llama.cpp survives it."""
    model = tiny(vocab=vocab)
    data, size = bytearray(model.encode()), len(model.head())
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    assert native.try_file(path) == LOADED
    bad: list[int] = []
    with path.open("r+b", buffering=0) as file:
        for bit in range(0, size * 8, STRIDE):
            place = bit // 8
            file.seek(place)
            file.write(bytes([data[place] ^ 1 << bit % 8]))
            if not survives(path, native):
                bad.append(bit)
            file.seek(place)
            file.write(data[place : place + 1])
    assert bad == []


def test_truncations(tmp_path: Path, native: Judge) -> None:
    """Wherever the file is cut: we refuse it, or llama.cpp survives it."""
    model = tiny()
    data = model.encode()
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    stride = 1 if EXHAUSTIVE else 499
    cuts = [*range(len(data), len(model.head()), -stride), *range(len(model.head()), -1, -1)]
    bad: list[int] = []
    for cut in cuts:
        os.truncate(path, cut)
        if not survives(path, native):
            bad.append(cut)
    assert bad == []
