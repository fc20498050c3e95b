"""Another llama.cpp than the bindings bring: where it comes from, and how it goes under them."""

import contextlib
import hashlib
import http.client
import os
import re
import shlex
import shutil
import tarfile
import tempfile
import traceback
import urllib.request
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from scripts.install.abi import adapt, compare
from scripts.install.commands import output_of
from scripts.install.source import cache_folder
from scripts.install.talk import InstallError, say

PINNED = "pinned"  # the one that the bindings bring
RELEASES = "https://github.com/ggml-org/llama.cpp/archive/refs/tags/{version}.tar.gz"
# What a build needs of it, or an installed worker's tests.
PARTS = (
    "CMakeLists.txt",
    "cmake",
    "common",
    "ggml",
    "include",
    "src",
    "tools",
    "vendor",
    "LICENSE",
)
VERSION = "__version__"
SHOWN = 20  # differences on a screen
_ENDING = re.compile(r"\.(tar\.\w+|tgz|zip)$")
# Lists what it has loaders for; worker/model/architectures.py reads the list.
ARCHITECTURES = "architectures.txt"
LISTING = """
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include "llama-arch.cpp"
std::string format(const char *, ...) { return ""; }
extern "C" void ggml_abort(const char *, int, const char *, ...) { std::abort(); }
int main() { for (auto each : llm_arch_all()) std::puts(llm_arch_name(each)); }
"""


@dataclass(frozen=True)
class Upstream:
    """A folder or a tarball with llama.cpp's source.

    name  such as b11549.1f3a5b7c: what it is called, and a hash of its files; the installed
          bindings have it behind the + of their version
    """

    name: str
    place: str

    @contextlib.contextmanager
    def folder(self) -> Generator[Path]:
        """Its files, unpacked where it is a tarball. Raises InstallError."""
        with _unpack(Path(self.place)) as folder:
            yield folder


def find(text: str) -> Upstream | None:
    """What LLAMA_CPP names: a folder, a tarball, or what is fetched, the version of a release or a
    tarball's address; None for the one of the bindings. Raises InstallError."""
    if text in ("", PINNED):
        return None
    place = Path(text).expanduser()
    if re.match(r"https?://", text):
        version = _ENDING.sub("", text.rstrip("/").rpartition("/")[2])
        place = _fetch(text, f"{version}-{hashlib.sha256(text.encode()).hexdigest()[:8]}")
    elif not place.exists():
        if not re.fullmatch(r"[bv]?\d[\w.]*", text):
            raise InstallError(
                f"LLAMA_CPP={text} is no folder or tarball here, and no version such as b11549."
            )
        version, place = text, _cache(text)
        if not place.exists():
            _fetch(RELEASES.format(version=text), text)
    else:
        version = _ENDING.sub("", place.resolve().name)
        if place.is_dir():
            version = (
                output_of("git", "-C", str(place), "describe", "--tags", "--always") or version
            )
    with _unpack(place) as folder:
        if not (folder / "include/llama.h").exists():
            raise InstallError(
                f"{text} is no source of llama.cpp: it has no include/llama.h. Name the folder or "
                "the tarball of a release."
            )
        label = ".".join(re.findall(r"[a-z0-9]+", version.lower()))
        label = "local" if label in ("", "llama.cpp") else label
        return Upstream(f"{label}.{_hash(folder)}", str(place.resolve()))


def graft(source: Path, upstream: Upstream, log: Path, *, rpc: bool) -> None:
    """Put it under the bindings, whose sdist `source` is unpacked, and adapt these.

    Raises InstallError where they do not fit, with the reasons: the first SHOWN, all in the log.
    """
    with upstream.folder() as folder:
        say(f"comparing llama.cpp {upstream.name} with what the bindings declare")
        found = compare(source, folder, rpc=rpc)
        if found.refusals:
            # What the worker itself uses comes first.
            reasons = sorted(found.refusals, key=lambda reason: "(used by worker" not in reason)
            with log.open("a") as file:
                file.writelines(f"{reason}\n" for reason in reasons)
            if (more := len(reasons) - SHOWN) > 0:
                reasons[SHOWN:] = [f"and {more} more (log: {log})"]
            told = "".join(f"\n  {reason}" for reason in reasons)
            raise InstallError(
                f"llama.cpp {upstream.name} does not fit llama-cpp-python; the installed library "
                f"stays. Take another version, or newer bindings. It differs:{told}"
            )
        for struct, places in found.grown.items():
            say(f"{struct} has {sum(count for _, count in places)} bytes that the bindings lack")
        adapt(source, found.grown)
        target = source / "vendor/llama.cpp"
        shutil.rmtree(target)
        target.mkdir()
        for part in PARTS:
            if (folder / part).is_dir():
                shutil.copytree(folder / part, target / part, symlinks=True)
            elif (folder / part).exists():
                shutil.copy2(folder / part, target / part)
    (source / "llama_cpp" / ARCHITECTURES).write_text(_architectures(target))
    package = source / "llama_cpp/__init__.py"
    text, count = re.subn(
        rf'^{VERSION} = "([^"+]+)"', rf'{VERSION} = "\1+{upstream.name}"', package.read_text(),
        flags=re.MULTILINE,
    )  # fmt: skip
    if count != 1:
        raise InstallError("The bindings' version is not where it was; nothing is built.")
    package.write_text(text)


def _architectures(folder: Path) -> str:
    """Names of the architectures that it knows, one a line; none where it cannot be asked."""
    with tempfile.TemporaryDirectory() as made:
        program, text = Path(made, "listing"), Path(made, "listing.cpp")
        text.write_text(LISTING)
        places = [f"-I{folder / place}" for place in ("src", "include", "ggml/include")]
        compiler = shlex.split(os.environ.get("CXX", "c++"))
        output_of(*compiler, "-std=c++17", "-w", *places, "-o", str(program), str(text))
        names = output_of(str(program)).splitlines()
    return "".join(f"{name}\n" for name in names if name.strip("()") != "unknown")


def _hash(folder: Path) -> str:
    """Of the files that are compiled."""
    found = hashlib.sha256()
    for part in PARTS:
        top = folder / part
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file():
                found.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
                found.update(path.read_bytes())
    return found.hexdigest()[:8]


@contextlib.contextmanager
def _unpack(place: Path) -> Generator[Path]:
    """The folder; of a tarball one that is removed afterwards. Raises InstallError."""
    if place.is_dir():
        yield place
        return
    with tempfile.TemporaryDirectory("", "llama-cpp-") as made:
        try:
            with tarfile.open(place) as archive:
                archive.extractall(made, filter="data")
        except (tarfile.TarError, OSError, EOFError) as error:
            reason = "it is no tarball" if "\n" in str(error) else error  # one line a compression
            raise InstallError(
                f"{place} cannot be unpacked: {reason}. Name a folder, or a whole .tar.gz, .tar.xz "
                "or .tar.bz2."
            ) from error
        tops = [each for each in Path(made).iterdir() if each.is_dir()]
        yield tops[0] if len(tops) == 1 else Path(made)


def _cache(name: str) -> Path:
    """Where a fetched tarball is kept."""
    return cache_folder() / "sources" / f"{name}.tar.gz"


def _fetch(url: str, name: str) -> Path:
    """A tarball in the cache folder. Raises InstallError; then nothing of it is kept."""
    target = _cache(name)
    say(f"fetching {url}")
    target.parent.mkdir(parents=True, exist_ok=True)
    made, log = target.with_suffix(".part"), target.with_name("fetch.log")
    try:
        with urllib.request.urlopen(url, timeout=60) as answer, made.open("wb") as file:  # noqa: S310
            shutil.copyfileobj(answer, file)
        if answer.length:  # what was announced and did not come
            raise OSError(f"{answer.length} bytes are missing")
        if not tarfile.is_tarfile(made):
            raise OSError("what came is no tarball")
    except (OSError, http.client.HTTPException) as error:
        made.unlink(missing_ok=True)
        log.write_text(f"{url}\n{traceback.format_exc()}")
        reason = str(error).removeprefix("<urlopen error ").removesuffix(">")
        raise InstallError(
            f"llama.cpp cannot be fetched from {url}: {reason} (log: {log}). Check the version and "
            "the network, or name a folder, a tarball or another address."
        ) from error
    return made.rename(target)
