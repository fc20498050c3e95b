"""The builds of llama-cpp-python; another clone or a switch back takes them from the cache."""

import contextlib
import hashlib
import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from scripts.install.commands import hold_lock, output_of, run
from scripts.install.lock import locked_text, write_requirements
from scripts.install.proof import options_without
from scripts.install.runtime import linker_flags
from scripts.install.source import NAME, OPTIONAL, UNUSED, cache_folder, fetch, unpack
from scripts.install.talk import InstallError, advice, say, since
from scripts.install.upstream import Upstream, graft

HOOK = Path(__file__).with_name("llama-cpp-options.cmake")
# What the build is told by files.
HOOK_FILES = (HOOK, *sorted(Path(__file__).parent.glob("amx-*")))
APPLE = sys.platform == "darwin"
DEFAULT_BACKEND = "metal" if APPLE and platform.machine() == "arm64" else "cpu"
# ggml's options, spelled out where llama-cpp-python or ggml would choose by platform.
BACKENDS = {
    "cpu": ["-DGGML_BLAS=OFF"],
    "cuda": ["-DGGML_CUDA=ON"],
    "metal": [],
    "vulkan": ["-DGGML_VULKAN=ON"],
    "blas": ["-DGGML_BLAS=ON", f"-DGGML_BLAS_VENDOR={'Apple' if APPLE else 'OpenBLAS'}"],
}
# A variant of the CPU's library for each generation of CPUs, of which the worker loads the best one
# (`worker/llama/variants.py`).
PORTABLE = [
    "-DGGML_BACKEND_DL=ON",
    "-DGGML_CPU_ALL_VARIANTS=ON",
    "-DCMAKE_INSTALL_RPATH=$ORIGIN",
    # Else the folder of the build would be in what is linked, and each build another one.
    "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
    # A wheel has no links: of each library it would hold three copies.
    "-DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON",
]
# Environment variables that compilers read.
VARIABLES = ["CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CUDACXX", "CUDAARCHS", "VULKAN_SDK"]
USUAL_NVCC = "/usr/local/cuda/bin/nvcc"  # where NVIDIA's packages put it, often not on PATH
JOB_BYTES = 1.5 * 2**30  # what one compiler needs
CPU_FEATURES = re.compile(r"\b(?:s?sse|avx|fma|f16c|bmi|amx|vaes|asimd|sve|sme|i8mm|bf16)\w*")


@dataclass(frozen=True)
class Library:
    """A build that is wanted; `cmake_args` are the user's own.

    locked    its source and what builds it have the hashes of the lock
    without   features of the CPU that its kernels must not use: they failed the proof
    portable  it runs on other CPUs too
    mtmd      what reads pictures and sounds is built too
    upstream  the llama.cpp that it is built from; None: the one that the bindings bring
    wheels    a folder or URL where pip finds it built; empty: it is built here
    """

    version: str = ""
    backend: str = DEFAULT_BACKEND
    rpc: bool = False
    cmake_args: str = ""
    locked: bool = field(default=False, repr=False)
    without: list[str] = field(default_factory=list[str])
    portable: bool = field(default=False, repr=False)
    wheels: str = field(default="", repr=False)
    mtmd: bool = field(default=True, repr=False)
    upstream: Upstream | None = field(default=None, repr=False)

    def __str__(self) -> str:
        if self.wheels:
            return f"{NAME} {self.version} from {self.wheels}"
        kind = f"any {self.backend}" if self.portable else self.backend
        kind += f"{' + rpc' * self.rpc}{', locked' * self.locked}"
        kind += ", without mtmd" * (not self.mtmd)
        without = f" without {' and '.join(self.without)}" if self.without else ""
        other = f" with llama.cpp {self.upstream.name}" if self.upstream else ""
        return f"{NAME} {self.version}{other} for {kind}{without}"

    @property
    def options(self) -> list[str]:
        return [
            *self._cpu_options,
            f"-DLLAVA_BUILD={'ON' if self.mtmd else 'OFF'}",
            "-DMTMD_VIDEO=OFF",  # it starts ffmpeg
            # llama.cpp's own install puts a second copy of each library into site-packages/lib.
            "-DCMAKE_INSTALL_LIBDIR=llama_cpp/lib",
            # CMake puts libraries that are loaded by path into the folder of programs.
            f"-DCMAKE_INSTALL_BINDIR=llama_cpp/{'lib' if self.portable else 'bin'}",
            "-DCMAKE_INSTALL_INCLUDEDIR=llama_cpp/include",
            f"-DGGUF_WORKER_METAL={'ON' if self.backend == 'metal' else 'OFF'}",
            f"-DGGML_RPC={'ON' if self.rpc else 'OFF'}",
            *BACKENDS[self.backend],
            *(PORTABLE if self.portable else []),
        ]

    @property
    def _cpu_options(self) -> list[str]:
        if self.portable:
            return ["-DGGML_NATIVE=OFF"]
        if self.without:
            return options_without(self.without, cpu_features())
        return ["-DGGML_NATIVE=ON"]  # built where it runs

    @property
    def key(self) -> str:
        """A hash of all that shapes the build, apart from the compiler; or of the wheels there."""
        if self.wheels:
            files = sorted(Path(self.wheels).glob("*.whl"))  # none at a URL
            stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
            return key_of(self.version, self.wheels, stats)
        lock = [locked_text(NAME)] if self.locked else []
        hooks = [file.read_text() for file in HOOK_FILES]
        features = "" if self.portable else cpu_features()
        other = [self.upstream.name] if self.upstream else []
        return key_of(self, self.options, *hooks, UNUSED.pattern, OPTIONAL, features, *lock, *other)


def key_of(*values: object) -> str:
    """Return a short hash."""
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]


def cpu_features() -> str:
    """Return what GGML_NATIVE compiles for: the build does not run on a lesser processor."""
    if APPLE:
        return output_of("sysctl", "-n", "machdep.cpu.brand_string")
    with contextlib.suppress(OSError):
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        return " ".join(sorted(set(CPU_FEATURES.findall(first))))
    return platform.processor()


def wheel_of(library: Library, pip: list[str]) -> Path:
    """Return the wheel; build it when the cache lacks it. Raises InstallError."""
    if library.backend == "metal" and not APPLE:
        raise InstallError("BACKEND=metal needs macOS; choose another one, such as BACKEND=cpu.")
    if library.backend == "cuda" and not shutil.which("nvcc") and Path(USUAL_NVCC).exists():
        os.environ.setdefault("CUDACXX", USUAL_NVCC)
    tools = [output_of(*shlex.split(os.environ.get("CXX", "c++")), "--version")]
    if not tools[0]:
        raise InstallError(advice("No C++ compiler"))
    tools += [os.environ.get(name, "") for name in VARIABLES]
    if library.backend == "cuda":
        tools += [output_of(os.environ.get("CUDACXX") or "nvcc", "--version")]
        tools += [output_of("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")]
    place = cache_folder() / "wheels" / key_of(library.key, tools)
    log = place / "build.log"
    with hold_lock(place / "lock", f"another install builds this; waiting for it (log: {log})"):
        if wheels := list(place.glob("*.whl")):
            return wheels[0]
        for left in place.glob("build-*"):  # by an installer that was killed
            shutil.rmtree(left, ignore_errors=True)
        # Compilers that were just killed may still hold files there: the next build removes those.
        with tempfile.TemporaryDirectory("", "build-", place, ignore_cleanup_errors=True) as folder:
            wheel = build(library, pip, Path(folder), log)
            return wheel.rename(place / wheel.name)


def build(library: Library, pip: list[str], folder: Path, log: Path) -> Path:
    """Compile in the folder and return the wheel there."""
    started = time.monotonic()
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(parallel_jobs())
    say(f"building {library} from source, {jobs} at a time (log: {log})")
    lock = write_requirements(folder, library=True) if library.locked else None
    source = fetch(library.version, pip, folder, log, lock)
    (folder / "source").mkdir()
    source = unpack(source, folder / "source")
    if library.upstream:
        graft(source, library.upstream, log, rpc=library.rpc)
    options = shlex.join(
        [*library.options, *linker_flags(), f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={HOOK}"]
    )
    # Without pip's cache, which would give the wheel of another backend.
    command = [*pip, "wheel", "-v", "--no-deps", "--no-cache-dir"]
    if library.locked:
        command.append("--no-build-isolation")  # the tools are there, from the lock
    settings = _anywhere(folder) if library.portable else {}
    run(
        f"Building {library}",
        [*command, "--wheel-dir", str(folder), str(source)],
        log,
        CMAKE_ARGS=f"{options} {library.cmake_args}",
        CMAKE_BUILD_PARALLEL_LEVEL=jobs,
        TMPDIR=str(folder),  # all that is unpacked and compiled goes when the folder goes
        **settings,
    )
    say(f"built in {since(started)}")
    return next(folder.glob("*.whl"))


def _anywhere(folder: Path) -> dict[str, str]:
    """Settings by which nothing in the wheel names the folder that it was built in."""
    flag = f"-ffile-prefix-map={folder}=."
    flags = {name: f"{os.environ.get(name, '')} {flag}" for name in ("CFLAGS", "CXXFLAGS")}
    return {**flags, "SKBUILD_WHEEL_EXCLUDE": "llama_cpp/lib/pkgconfig/**"}


def parallel_jobs() -> int:
    """Return how many compilers run at once: one for each CPU, as far as memory allows."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # no limit, or the word "max"
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return max(1, min(cpus or 1, int(memory / JOB_BYTES)))
