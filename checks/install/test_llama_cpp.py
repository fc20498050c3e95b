"""Another llama.cpp under the bindings: what fits, what is adapted, what is refused."""

from __future__ import annotations

import ctypes
import importlib
import io
import re
import subprocess
import tarfile
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from scripts.install import abi, upstream
from scripts.install.abi import adapt, compare
from scripts.install.talk import InstallError
from scripts.install.upstream import find, graft
from tests.support.checkout import BINDINGS, HEADER, Checkout


def _tree(folder: Path, header: str) -> Path:
    (folder / "include").mkdir(parents=True)
    (folder / "include/llama.h").write_text(header)
    (folder / "CMakeLists.txt").touch()
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An unpacked sdist whose bindings fit its llama.cpp."""
    top = tmp_path / "sdist"
    _tree(top / "vendor/llama.cpp", HEADER)
    package = top / "llama_cpp"
    package.mkdir()
    (package / "llama_cpp.py").write_text(BINDINGS)
    (package / "__init__.py").write_text('__version__ = "1.2.3"\n')
    return top


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("int32_t count", "float count", "field llama_thing.count has another type"),
        ("int32_t count", "int64_t count", "field llama_thing.count has another type"),
        ("bool whole;", "", "field llama_thing.whole is gone"),
        ("int32_t llama_use", "int32_t llama_used", "function llama_use is gone"),
        ("float share", "double share", "function llama_use has another signature"),
        ("int32_t llama_use", "int64_t llama_use", "function llama_use has another signature"),
        ("LLAMA_KIND_A = 0,", "LLAMA_KIND_NEW = 0, LLAMA_KIND_A,", "LLAMA_KIND_A is 1, not 0"),
        ("LLAMA_KIND_A = 0,", "", "number LLAMA_KIND_A is gone"),
        ("int32_t count; bool whole;", "bool whole; int32_t count;", "another order of fields"),
    ],
)  # fmt: skip
def test_what_does_not_fit(source: Path, tmp_path: Path, old: str, new: str, told: str) -> None:
    """A field, a function or a number that is another one is named, with what it is used for."""
    assert old in HEADER
    found = compare(source, _tree(tmp_path / "other", HEADER.replace(old, new)))
    assert any(told in refusal for refusal in found.refusals), found
    assert all(re.search(r"\((used by worker/|declared by)", each) for each in found.refusals)


def test_all_that_does_not_fit_is_told(source: Path, tmp_path: Path) -> None:
    """A changed field, a removed function and a renumbered enum at once: nothing is built, and each
    has a line."""
    header = (
        HEADER.replace("int32_t count", "int64_t count")
        .replace("int32_t llama_use", "int32_t llama_used")
        .replace("LLAMA_KIND_A = 0", "LLAMA_KIND_A = 5")
    )
    found = find(str(_tree(tmp_path / "b3", header)))
    assert found is not None
    with pytest.raises(InstallError, match="the installed library stays") as caught:
        graft(source, found, source / "log", rpc=False)
    _, *lines = str(caught.value).splitlines()
    told = [line.strip().partition(" (")[0] for line in lines]
    assert set(told) >= {
        "field llama_thing.count has another type",
        "function llama_use is gone",
        "number LLAMA_KIND_A is 5, not 0",
    }
    assert (source / "vendor/llama.cpp/include/llama.h").read_text() == HEADER


def test_a_screen_of_what_does_not_fit(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a version that is far off, the error shows what the worker uses first, and the log all."""
    monkeypatch.setattr(upstream, "SHOWN", 2)
    reasons = [f"function {name} is gone (declared by llama-cpp-python)" for name in "abc"]
    reasons.append("function d is gone (used by worker/llama/vocab.py)")

    def differ(*_: object, **__: object) -> abi.Fit:
        return abi.Fit(list(reasons), {})

    monkeypatch.setattr(upstream, "compare", differ)
    found, log = find(str(_tree(tmp_path / "b1", HEADER))), tmp_path / "build.log"
    assert found is not None
    with pytest.raises(InstallError) as caught:
        graft(source, found, log, rpc=False)
    _, *lines = str(caught.value).splitlines()
    assert [line.strip() for line in lines] == [reasons[3], reasons[0], f"and 2 more (log: {log})"]
    assert sorted(log.read_text().splitlines()) == sorted(reasons)


def test_what_fits(source: Path, tmp_path: Path) -> None:
    """More functions and numbers at the end change nothing; what no header names is not held."""
    more = HEADER.replace("_B = 1", "_B = 1, LLAMA_KIND_C").replace(
        "int32_t llama_use", "int32_t llama_more(void);\nint32_t llama_use"
    )
    found = compare(source, _tree(tmp_path / "other", more))
    assert found == abi.Fit([], {})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("void * more;", "void * more; int64_t added;"),
        ("bool whole;", "bool whole; int64_t added;"),
        ("int32_t count;", "int64_t added; int32_t count;"),
        ("int32_t count;", "int64_t added[3]; int32_t count; int64_t too;"),
    ],
)
def test_structs_that_grew(source: Path, tmp_path: Path, old: str, new: str) -> None:
    """Fields that the bindings do not know become bytes in their places, wherever they stand."""
    other = _tree(tmp_path / "other", HEADER.replace(old, new))
    found = compare(source, other)
    assert not found.refusals
    adapt(source, found.grown)
    again = compare(source, other)
    assert again == abi.Fit([], {})


def test_a_library_with_a_grown_struct_is_called(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through adapted bindings a struct goes by value to the library and back, whole."""
    grown = HEADER.replace("bool whole;", "bool whole; int64_t added;")
    other = _tree(tmp_path / "other", grown)
    adapt(source, compare(source, other).grown)
    code = grown + (
        "struct llama_thing llama_thing_default(void) {"
        " struct llama_thing t = {3, true, 77, (void *) 9}; return t; }\n"
        "int32_t llama_use(struct llama_thing t, float share) {"
        " return t.added == 77 && t.more == (void *) 5 ? t.count * share : -1; }\n"
    )
    (tmp_path / "lib.c").write_text(code)
    made = tmp_path / "lib.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, tmp_path / "lib.c"], check=True)
    fields = (source / "llama_cpp/llama_cpp.py").read_text()
    namespace: dict[str, type[ctypes.Structure]] = {}
    start = fields.index("class llama_thing")
    exec(f"import ctypes\n{fields[start : fields.index('@ctypes_function')]}", namespace)
    thing = namespace["llama_thing"]
    lib = ctypes.CDLL(str(made))
    lib.llama_thing_default.restype, lib.llama_thing_default.argtypes = thing, []
    lib.llama_use.restype, lib.llama_use.argtypes = ctypes.c_int32, [thing, ctypes.c_float]
    value = lib.llama_thing_default()
    assert (value.count, value.whole, value.more) == (3, True, 9)
    value.more = 5
    assert lib.llama_use(value, 2.0) == 6


def test_the_pinned_headers_fit() -> None:
    """What the worker itself declares names functions, structs and numbers, each once a table."""
    signatures = importlib.import_module("worker.llama.signatures")
    for table in signatures.TABLES:
        names = [name for name, *_ in table]
        assert len(set(names)) == len(names)
    assert all(name.startswith(("GGML_", "MTMD_", "RPC_")) for name in signatures.VALUES)


def test_the_bindings_get_another_version(source: Path, tmp_path: Path) -> None:
    """So everything that is kept by version is kept apart, and `worker version` names both."""
    place = _tree(tmp_path / "b12345", HEADER)
    found = find(str(place))
    assert found is not None
    assert found.name.startswith("b12345.")
    graft(source, found, source / "log", rpc=False)
    assert f'"1.2.3+{found.name}"' in (source / "llama_cpp/__init__.py").read_text()
    (place / "include/llama.h").write_text(HEADER + "\n")
    changed = find(str(place))
    assert changed is not None
    assert changed.name != found.name


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_source_is_a_folder_or_a_tarball(source: Path, tmp_path: Path, is_packed: bool) -> None:
    place = _tree(tmp_path / "b7", HEADER)
    if is_packed:
        packed = tmp_path / "b7.tar.gz"
        with tarfile.open(packed, "w:gz") as archive:
            archive.add(place, "llama.cpp-b7")
        place = packed
    found = find(str(place))
    assert found is not None
    graft(source, found, source / "log", rpc=False)
    assert (source / "vendor/llama.cpp/include/llama.h").read_text() == HEADER


def test_what_is_no_source(tmp_path: Path) -> None:
    """One sentence each, before anything is built; an old one had its header elsewhere."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "old").mkdir()
    (tmp_path / "old/llama.h").write_text(HEADER)
    (tmp_path / "text.tar.gz").write_text("no tar")
    (tmp_path / "b7.zip").write_bytes(b"PK\x03\x04" + bytes(600))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(_tree(tmp_path / "b7", HEADER), "b7")
    (tmp_path / "half.tar.gz").write_bytes(packed.getvalue()[:-100])
    for name, told in (
        ("empty", "no include/llama.h"),
        ("old", "no include/llama.h"),
        ("text.tar.gz", "cannot be unpacked: it is no tarball. Name"),
        ("b7.zip", "cannot be unpacked: it is no tarball. Name"),
        ("half.tar.gz", "cannot be unpacked: Compressed file ended before"),
    ):
        with pytest.raises(InstallError, match=told) as caught:
            find(str(tmp_path / name))
        assert "\n" not in str(caught.value)
    with pytest.raises(InstallError, match="is no folder or tarball here, and no version"):
        find("no/such/folder")
    assert find("pinned") is None


def test_headers_that_are_cut_off(source: Path, tmp_path: Path) -> None:
    """One sentence with the folder and what the compiler says; nothing is built."""
    other = _tree(tmp_path / "other", HEADER[: len(HEADER) // 2])
    with pytest.raises(InstallError, match="the installed library stays") as caught:
        compare(source, other)
    assert str(other) in str(caught.value)
    assert "error: " in str(caught.value)


class _Releases(BaseHTTPRequestHandler):
    """Stands for the place where releases are: `answers` has the body of each path; cut is shorter
    than announced."""

    answers: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        body = self.answers.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"") + 100 * ("cut" in self.path)))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """The address of a server with one release, b7, and some that are none."""
    place, packed = _tree(tmp_path / "b7", HEADER), tmp_path / "b7.tgz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(place, "llama.cpp-b7")
    whole = packed.read_bytes()
    _Releases.answers = {"/b7.tar.gz": whole, "/b8cut.tar.gz": whole, "/b9.tar.gz": b"<html>"}
    _Releases.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Releases) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(upstream, "RELEASES", url + "/{version}.tar.gz")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield url
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("is_address", [False, True])
def test_a_release_is_fetched(releases: str, source: Path, is_address: bool) -> None:
    """By its version, once; or from an address, such as a mirror's, each time it is named."""
    text = f"{releases}/b7.tar.gz" if is_address else "b7"
    found = find(text)
    assert found is not None
    assert re.fullmatch(r"b7\.[0-9a-f]{8}", found.name)
    assert find(text) == found
    graft(source, found, source / "log", rpc=False)
    assert (source / "vendor/llama.cpp/include/llama.h").read_text() == HEADER
    assert _Releases.asked == ["/b7.tar.gz"] * (2 if is_address else 1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("b6", "HTTP Error 404: Not Found"),
        ("b8cut", "100 bytes are missing"),
        ("b9", "what came is no tarball"),
        ("{releases}/b6.tgz", "HTTP Error 404: Not Found"),
        ("http://127.0.0.1:9/b7.tar.gz", "Connection refused"),
    ],
)
def test_what_cannot_be_fetched(releases: str, tmp_path: Path, text: str, told: str) -> None:
    """One sentence with the address and a log's path; nothing of it is kept."""
    for _ in range(2):
        with pytest.raises(InstallError, match=told) as caught:
            find(text.format(releases=releases))
        assert "cannot be fetched from http://127.0.0.1" in str(caught.value)
        assert "\n" not in str(caught.value)
        log = re.search(r"\(log: (.*)\)", str(caught.value))
        assert log is not None
        assert told in Path(log[1]).read_text()
    assert [path.name for path in (tmp_path / "cache/gguf-worker/sources").iterdir()] == [
        "fetch.log"
    ]


def test_what_does_not_fit_leaves_the_installed_library(tmp_path: Path) -> None:
    """A folder that does not fit or does not build: one sentence, and what is there stays."""
    checkout = Checkout(tmp_path)
    checkout.install()
    before = checkout.cmake_args()
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no include/llama.h" in checkout.install(code=1, LLAMA_CPP=str(empty))
    other = _tree(tmp_path / "other", HEADER.replace("llama_use", "llama_used"))
    said = checkout.install(code=1, LLAMA_CPP=str(other))
    assert "does not fit" in said
    assert "function llama_use is gone" in said
    fits = _tree(tmp_path / "b9", HEADER)
    said = checkout.install(code=1, LLAMA_CPP=str(fits), FAKE_FAILURE="fatal error: no such file")
    assert "failed (log:" in said
    assert checkout.cmake_args() == before
    assert "LOCKED=1" in checkout.install("--locked", "1", code=1, LLAMA_CPP=str(fits))
    assert "b9." in checkout.install(LLAMA_CPP=str(fits))
    assert "installed already" in checkout.install()
    assert "b9." not in checkout.install(LLAMA_CPP="pinned").rpartition("ready")[2]


def test_unused_requirements_are_left_out(tmp_path: Path) -> None:
    """The bindings' wheel does not ask for what nothing here imports."""
    from scripts.install.source import unpack

    sdist = tmp_path / "a.tar.gz"
    project = tmp_path / "pyproject.toml"
    project.write_text('dependencies = [\n    "numpy>=1",\n    "diskcache>=5.6.1",\n]\n')
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(project, "top/pyproject.toml")
    (tmp_path / "out").mkdir()
    top = unpack(sdist, tmp_path / "out")
    assert (top / "pyproject.toml").read_text() == 'dependencies = [\n    "numpy>=1",\n]\n'
