"""Variants of the CPU's backend: the best sound one is loaded, once, and by its path."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from worker.errors import BackendError
from worker.llama import library, variants

# As ggml scores them on a CPU with AVX-512 and without AMX.
SCORES = {"x64": 1, "sse42": 5, "haswell": 64, "zen4": 1984, "sapphirerapids": 0}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with five variants, of which four run here, beside libraries of other kinds."""
    for name in (*(f"cpu-{name}" for name in SCORES), "base", "cpu"):
        (tmp_path / f"libggml-{name}.so").touch()
    monkeypatch.setattr(variants, "_score", lambda path: SCORES[path.stem.split("-")[2]])  # pyright: ignore
    monkeypatch.delenv(variants.TOLD, raising=False)
    return tmp_path


class Loader:
    """ggml's loader, which remembers what it was given, and refuses a name."""

    def __init__(self, refused: str = "") -> None:
        self.paths: list[str] = []

        def ggml_backend_load(path: bytes) -> int:
            self.paths.append(os.fsdecode(path))
            return 0 if refused and refused in self.paths[-1] else 1

        self.ggml_backend_load: Any = ggml_backend_load


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has loaded none."""
    monkeypatch.setattr(variants, "_loaded", [])


def test_the_best_comes_first(folder: Path) -> None:
    """Those that cannot run here are left out, the others are ordered by their own score."""
    assert [each.name for each in variants.rank_variants(folder)] == [
        "zen4",
        "haswell",
        "sse42",
        "x64",
    ]
    assert "sapphirerapids" in variants.variant_names(folder)


def test_the_best_that_is_sound_is_chosen(folder: Path) -> None:
    """An unsound one gives way to the next; where all are, a sentence says what to do."""
    for unsound, name in ((set[str](), "zen4"), ({"zen4"}, "haswell"), ({"haswell"}, "zen4")):
        chosen = variants.choose(folder, lambda each, unsound=unsound: each not in unsound)
        assert chosen is not None
        assert chosen.name == name
    with pytest.raises(BackendError, match="None of this build's variants") as failed:
        variants.choose(folder, lambda _: False)
    assert failed.value.hint is not None
    assert "make install" in failed.value.hint


def test_a_process_can_be_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable names the variant, sound or not; a name that cannot run is refused."""
    monkeypatch.setenv(variants.TOLD, "sse42")
    chosen = variants.choose(folder, lambda name: name != "sse42")
    assert chosen is not None
    assert chosen.name == "sse42"
    monkeypatch.setenv(variants.TOLD, "sapphirerapids")
    with pytest.raises(BackendError, match="run here: zen4, haswell, sse42, x64"):
        variants.choose(folder, lambda _: True)


def test_a_build_for_one_cpu_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to choose, and to name a variant is an error."""
    monkeypatch.delenv(variants.TOLD, raising=False)
    assert variants.choose(tmp_path, lambda _: True) is None
    monkeypatch.setenv(variants.TOLD, "zen4")
    with pytest.raises(BackendError, match="run here: none"):
        variants.choose(tmp_path, lambda _: True)


def test_one_is_loaded_once(folder: Path, fresh: None) -> None:
    """It is given to ggml by its whole path; the same again is nothing, another one an error."""
    loader: Any = Loader()
    variants.load(loader, None)
    assert variants.current() is None
    best, second, *_ = variants.rank_variants(folder)
    variants.load(loader, best)
    variants.load(loader, best)
    assert loader.paths == [str(folder / "libggml-cpu-zen4.so")]
    assert variants.current() == best
    with pytest.raises(BackendError, match="zen4 already"):
        variants.load(loader, second)


def test_one_that_ggml_refuses(folder: Path, fresh: None) -> None:
    """A library that cannot be loaded is named, and none counts as loaded."""
    loader: Any = Loader("zen4")
    with pytest.raises(BackendError, match=r"libggml-cpu-zen4\.so"):
        variants.load(loader, variants.rank_variants(folder)[0])
    assert variants.current() is None


def test_a_damaged_library_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be opened scores nothing, so the next one is taken."""
    monkeypatch.delenv(variants.TOLD, raising=False)
    (tmp_path / "libggml-cpu-zen4.so").write_bytes(b"\x7fELF and no more")
    assert variants.variant_names(tmp_path) == ("zen4",)
    assert variants.rank_variants(tmp_path) == ()


def test_this_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library says of itself is what was loaded, and it has one CPU device."""
    have, build = variants.variant_names(library.FOLDER), library.build()
    assert (build.variant in have) if have else (build.variant == "")
    assert [device.kind for device in library.devices()].count("cpu") == 1
    assert isinstance(library.ggml(), ctypes.CDLL)


def test_a_wrong_name_is_one_sentence() -> None:
    """The worker ends with it and the exit code of backends, whatever this build is."""
    done = subprocess.run(
        [sys.executable, "-m", "worker", "version"],
        env=os.environ | {variants.TOLD: "zen9"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == BackendError.exit_code
    assert done.stderr.startswith(f"error: BACKEND: {variants.TOLD} names zen9"), done
    assert len(done.stderr.splitlines()) == 1
