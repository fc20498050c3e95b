"""Weights come from the files that were checked, whatever happens to their names meanwhile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.models import ggufs
from worker.errors import ModelFileError, ModelLoadError
from worker.llama import library
from worker.llama.context import Context, ContextOptions
from worker.llama.library import native
from worker.llama.weights import LoadOptions, Weights
from worker.model.config import load_config

linux = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")


def options(path: Path, *, mmap: bool = False) -> LoadOptions:
    """To load the model as its files are now."""
    return LoadOptions(n_gpu_layers=0, mmap=mmap, files=load_config(path).files)


def do_before_loading(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Have something happen between our last look at the files and llama.cpp's first."""
    load: Any = native.llama_model_load_from_splits  # pyright: ignore

    def act_and_load(*arguments: Any) -> Any:
        action()
        return load(*arguments)

    monkeypatch.setattr(native, "llama_model_load_from_splits", act_and_load)


@pytest.mark.parametrize("mmap", [False, True], ids=["read", "mapped"])
@pytest.mark.parametrize("splits", [1, 3])
def test_a_checked_model_loads(tmp_path: Path, splits: int, mmap: bool) -> None:
    """One file or several, read or mapped."""
    path = ggufs.write_llama(tmp_path / "m.gguf", splits=splits, context=384)
    with Weights(path, options(path, mmap=mmap)) as weights:
        assert weights.n_ctx_train == 384


@linux
@pytest.mark.parametrize("mmap", [False, True], ids=["read", "mapped"])
@pytest.mark.parametrize("splits", [1, 3])
def test_a_file_renamed_over_a_checked_one_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, splits: int, mmap: bool
) -> None:
    """What was checked is loaded, also where another model has got its name by then."""
    path = ggufs.write_llama(tmp_path / "m.gguf", splits=splits, context=384)
    given = options(path, mmap=mmap)
    do_before_loading(
        monkeypatch,
        lambda: ggufs.write_llama(tmp_path / "n.gguf", context=512).rename(path),
    )
    with Weights(path, given) as weights:
        assert weights.n_ctx_train == 384
    with Weights(path, LoadOptions(n_gpu_layers=0)) as weights:
        assert weights.n_ctx_train == 512


@pytest.mark.parametrize("splits", [1, 2])
def test_a_file_that_changed_before(tmp_path: Path, splits: int) -> None:
    """A model whose last file was written since it was checked is refused."""
    path = ggufs.write_llama(tmp_path / "m.gguf", splits=splits)
    given = options(path)
    os.utime(given.files[-1].path, (1, 1))
    with pytest.raises(ModelFileError, match="was replaced or written") as caught:
        Weights(path, given)
    assert caught.value.code == "CHANGED"


def test_a_file_written_while_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what was read of it, so the model is given back."""
    path = ggufs.write_llama(tmp_path / "m.gguf")
    given = options(path)
    do_before_loading(monkeypatch, lambda: os.utime(path, (1, 1)))
    freed: list[Any] = []
    free = native.llama_model_free
    monkeypatch.setattr(native, "llama_model_free", lambda model: freed.append(free(model)))  # pyright: ignore
    with pytest.raises(ModelFileError, match="was replaced or written"):
        Weights(path, given)
    assert len(freed) == 1


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    """A file's name need not be UTF-8."""
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.gguf"))
    ggufs.write_llama(path, context=384)
    with Weights(path, LoadOptions(n_gpu_layers=0)) as weights:
        assert weights.n_ctx_train == 384


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_a_mapped_file_gives_its_pages_back(tmp_path: Path) -> None:
    """After the load nothing of the file is held, and what is used comes back by itself."""
    path = ggufs.write_llama(tmp_path / "m.gguf", encoding="Q4_0", layers=4)
    with Weights(path, options(path, mmap=True)) as weights:
        assert held_bytes(path) == 0
        with Context(weights, ContextOptions(num_cells=256, num_slots=1)) as context:
            context.compute_one(0)
            assert np.isfinite(context.logits(0)).all()
        assert held_bytes(path) > 0


def held_bytes(path: Path) -> int:
    """Resident bytes of this process's mappings of a file."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    starts = [at for at, line in enumerate(lines) if line.endswith(str(path))]
    assert starts, "the file is not mapped"
    sizes = [next(line for line in lines[at:] if line.startswith("Rss:")) for at in starts]
    return sum(int(size.split()[1]) * 1024 for size in sizes)


def test_a_file_system_that_cannot_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are read with --no-mmap, and are not blamed."""

    @contextlib.contextmanager
    def said() -> Generator[list[tuple[str, str]]]:
        yield [("error", "llama_model_load: error loading model: mmap failed: No such device")]

    def refuse(*_: object) -> None: ...

    path = ggufs.write_llama(tmp_path / "model.gguf")
    monkeypatch.setattr(native, "llama_model_load_from_splits", refuse)
    monkeypatch.setattr(library, "capture_log", said)
    with pytest.raises(ModelLoadError, match=r"mmap failed: No such device") as caught:
        Weights(path, options(path, mmap=True))
    assert caught.value.hint == (
        "Start the worker with --no-mmap, or copy the file to another file system."
    )
