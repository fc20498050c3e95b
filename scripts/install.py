"""Install what is missing, and only that: the virtual environment, llama-cpp-python built from
source for the backend that was asked for, and the packages of pyproject.toml.

    python3 scripts/install.py [--backend cpu|cuda|metal|vulkan|blas] [--rpc 0|1] [--extra dev]

`make install`, `make serve` and `make test` call this. Nothing but the standard library; pip does
the work, with the user's pip configuration.

What a virtual environment holds is written to its `gguf-worker.json`, before and after each
change. A finished build is kept as a wheel in `~/.cache/gguf-worker/wheels/<key>/`, where <key>
covers everything that shapes the library, so another clone or a switch back does not compile.
A build that was interrupted goes on where it stopped; after a kill it starts again.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
HOOK = ROOT / "scripts" / "llama-cpp-options.cmake"
LIBRARY = "llama-cpp-python"
APPLE = sys.platform == "darwin"
DEFAULT_BACKEND = "metal" if APPLE and platform.machine() == "arm64" else "cpu"

# ggml's options, spelled out where llama-cpp-python or ggml would choose by platform.
BACKENDS = {
    "cpu": ("-DGGML_BLAS=OFF", "-DGGUF_WORKER_METAL=OFF"),
    "cuda": ("-DGGML_CUDA=ON", "-DGGUF_WORKER_METAL=OFF"),
    "metal": ("-DGGUF_WORKER_METAL=ON",),
    "vulkan": ("-DGGML_VULKAN=ON", "-DGGUF_WORKER_METAL=OFF"),
    "blas": (
        "-DGGML_BLAS=ON",
        f"-DGGML_BLAS_VENDOR={'Apple' if APPLE else 'OpenBLAS'}",
        "-DGGUF_WORKER_METAL=OFF",
    ),
}
COMMON_OPTIONS = (
    "-DGGML_NATIVE=ON",  # built where it runs
    "-DLLAVA_BUILD=OFF",
    # llama.cpp's own install puts a second copy of each library into site-packages/lib.
    "-DCMAKE_INSTALL_LIBDIR=llama_cpp/lib",
    "-DCMAKE_INSTALL_BINDIR=llama_cpp/bin",
    "-DCMAKE_INSTALL_INCLUDEDIR=llama_cpp/include",
)
PIP_SETTINGS = {
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_USER": "0",
    "PIP_PROGRESS_BAR": "off",
    # The first holds for packages, and up to pip 25.2 for build tools; the second for these since.
    "PIP_CONSTRAINT": f"{CONSTRAINTS.as_uri()} {os.environ.get('PIP_CONSTRAINT', '')}".strip(),
    "PIP_BUILD_CONSTRAINT": CONSTRAINTS.as_uri(),
}
# Environment variables that change what the compiler makes, for all backends and for some.
COMPILER_VARIABLES = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS")
BACKEND_VARIABLES = {
    "cuda": ("CUDACXX", "CUDAARCHS", "CUDAHOSTCXX", "CUDAFLAGS"),
    "vulkan": ("VULKAN_SDK",),
}
CPU_FEATURES = re.compile(r"sse|ssse|avx|fma|f16c|bmi|amx|vaes|asimd|sve|sme\d?$|i8mm|bf16|fphp")
MEMORY_PER_JOB = 1.5 * 2**30

COMPILER_ADVICE = (
    "Install a C and C++ compiler (Debian, Ubuntu: apt-get install g++; Fedora: dnf install "
    "gcc-c++; macOS: xcode-select --install) and run the same command again."
)
# What a failing log says -> what to do. The first that matches is printed.
ADVICE = (
    (
        r"No space left on device",
        "The disk is full: a build needs about 1 GB in the cache directory (XDG_CACHE_HOME).",
    ),
    (
        r"Killed signal|out of memory|cannot allocate memory",
        "The compiler ran out of memory: run again with CMAKE_BUILD_PARALLEL_LEVEL=1; it goes on "
        "where it stopped.",
    ),
    (
        r"CUDA Toolkit not found|CommandError to find nvcc|No CMAKE_CUDA_COMPILER|CUDACXX",
        "The CUDA toolkit was not found: install it and put nvcc on PATH (or set CUDACXX), or "
        "choose another backend, such as BACKEND=cpu.",
    ),
    (
        r"CUDA::cublas",
        "The CUDA toolkit lacks cuBLAS with its headers: install the whole toolkit, or choose "
        "another backend, such as BACKEND=cpu.",
    ),
    (
        r'"native", but no GPU',
        "No GPU to take the CUDA architecture from: name it, such as "
        "CMAKE_ARGS=-DCMAKE_CUDA_ARCHITECTURES=90.",
    ),
    (
        r"Could NOT find Vulkan|Could not find .*SPIRV-Headers|SPIRV-HeadersConfig",
        "Vulkan's headers or its shader compiler are missing (Debian, Ubuntu: apt-get install "
        "libvulkan-dev glslc spirv-headers; Fedora: dnf install vulkan-devel glslc "
        "spirv-headers-devel; macOS: the Vulkan SDK), or choose another backend, such as "
        "BACKEND=cpu.",
    ),
    (
        r"BLAS not found|Could NOT find BLAS|Could NOT find PkgConfig",
        "OpenBLAS or pkg-config is missing (Debian, Ubuntu: apt-get install libopenblas-dev "
        "pkg-config; Fedora: dnf install openblas-devel pkgconf), or choose another backend, such "
        "as BACKEND=cpu.",
    ),
    (
        r"No matching distribution|Could not find a version|Max retries|Connection refused",
        "pip did not get a package: check the network and `pip config list`.",
    ),
    (r"No CMAKE_CXX_COMPILER|is not able to compile a simple test program", COMPILER_ADVICE),
)


# ---------------------------------------------------------------------------- talking


def say(text: str) -> None:
    print(f"gguf-worker: {text}", file=sys.stderr, flush=True)


def stop(text: str) -> NoReturn:
    say(text)
    raise SystemExit(1)


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def short(path: Path) -> str:
    return str(path).replace(str(Path.home()), "~", 1)


class Display:
    """What goes on now: one line that is rewritten in a terminal, else a line now and then."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.live = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.next_line = 0.0
        self.printed: str | None = None

    def show(self, activity: str | None) -> None:
        now = time.monotonic()
        line = f"  {clock(now - self.started)}  {activity or ''}"
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{line[:width]}\x1b[K", end="", file=sys.stderr, flush=True)
        elif activity and now >= self.next_line and activity != self.printed:
            print(line, file=sys.stderr, flush=True)
            self.next_line, self.printed = now + 5, activity

    def close(self) -> None:
        if self.live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class Follower:
    """Shows what the processes that write to a log are doing."""

    def __init__(self, log: Path) -> None:
        self.display = Display()
        self.file = log.open("rb")
        self.file.seek(0, os.SEEK_END)
        self.doing: str | None = None

    def look(self) -> None:
        for line in self.file.read().splitlines():
            self.doing = activity(line.decode(errors="replace")) or self.doing
        self.display.show(self.doing)

    def close(self) -> None:
        self.display.close()
        self.file.close()


def activity(line: str) -> str | None:
    """What a line of pip's, CMake's or ninja's output says is going on."""
    if step := re.match(r"\s*\[\s*(\d+)/(\d+)\]\s*(.*)", line):
        done, total = int(step[1]), int(step[2])
        target = re.search(r"([^/\s]+)\.o\b", step[3])
        what = f"compiled {target[1]}" if target else ""
        return f"[{done:{len(step[2])}}/{total}] {100 * done // total:3}%  {what}"
    if percent := re.match(r"\s*\[\s*(\d+%)\]\s*(.*)", line):  # make, where ninja is not to be had
        return f"{percent[1]}  {percent[2]}"
    if "Installing build dependencies: started" in line:
        return "fetching the build tools"
    if "*** Configuring CMake" in line:
        return "configuring"
    if step := re.match(r"(Collecting|Downloading) (?:\S*/)?([\w.-]+)", line):
        return f"{step[1].lower()} {step[2]}"
    if line.startswith("Installing collected packages"):
        number = line.count(",") + 1
        return f"installing {number} package{'s' * (number > 1)}"
    return None


# ---------------------------------------------------------------------------- running


class CommandError(Exception):
    """A command has ended with an error; its output is in the log."""


@contextlib.contextmanager
def lock(path: Path, waiting: str, log: Path) -> Iterator[int]:
    """Hold the lock file, and after waiting for it show what its holder logs. Processes that
    inherit it hold it as well until they end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with contextlib.closing(Follower(log)) as follower:
            told = False
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not told:
                        say(waiting)
                    told = True
                    follower.look()
                    time.sleep(0.5)
        yield handle
    finally:
        os.close(handle)


def run(command: list[str], log: Path, held: int, env: dict[str, str] | None = None) -> None:
    """Run with output to the log, showing progress. Leaves no process behind when interrupted."""
    with log.open("ab") as out:
        out.write(f"\n$ {shlex.join(command)}\n".encode())
        out.flush()
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, **PIP_SETTINGS, **(env or {})},
            pass_fds=(held,),
            process_group=0,
        )
    try:
        with contextlib.closing(Follower(log)) as follower:
            while process.poll() is None:
                follower.look()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.5)
    except BaseException:
        end_group(process)
        raise
    if process.returncode:
        raise CommandError(log)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a command and everything it started, and wait for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for attempt in range(200):
        try:
            os.killpg(process.pid, signal.SIGTERM if attempt < 100 else signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # macOS says the second for zombies
            break
        process.poll()
        time.sleep(0.05)
    process.wait()


def last_output(log: Path) -> str:
    """What the last command in the log printed."""
    return log.read_text(errors="replace").rpartition("\n$ ")[2]


def excerpt(log: Path, lines: int = 30) -> str:
    """The part of a failed log that says why."""
    text = last_output(log).splitlines()
    cause = re.compile(r"FAILED:|CMake Error|^\s*ERROR:|fatal error")
    found = [number for number, line in enumerate(text) if cause.search(line)]
    first = max(found[0] - 2, 0) if found else max(len(text) - lines, 0)
    if found:  # pip then says at length that a subprocess has failed
        text = list(itertools.takewhile(lambda line: "subprocess-exited" not in line, text))
    return "\n".join(f"  {line.strip()[:200]}" for line in text[first : first + lines] if line)


def explain(log: Path, what: str) -> NoReturn:
    text = last_output(log)
    advice = next((a for pattern, a in ADVICE if re.search(pattern, text, re.IGNORECASE)), None)
    print(excerpt(log), file=sys.stderr)
    stop(f"{what} failed. {advice + ' ' if advice else ''}All output: {short(log)}")


def output(*command: str) -> str:
    """What a command prints, or nothing if it cannot be run or fails."""
    try:
        done = subprocess.run(  # noqa: S603
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


# ---------------------------------------------------------------------------- the library


def wanted(args: argparse.Namespace, before: dict[str, Any]) -> dict[str, Any]:
    """The library asked for. What is not asked for stays as it was; a backend names all of it."""
    kept = {} if args.backend else before
    backend = args.backend or kept.get("backend", DEFAULT_BACKEND)
    rpc = args.rpc == "1" if args.rpc else kept.get("rpc", False)
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    pins = [r.partition("==")[2] for r in requirements if r.startswith(f"{LIBRARY}==")]
    return {
        "version": pins[0],
        "backend": backend,
        "rpc": rpc,
        "cmake_args": os.environ.get("CMAKE_ARGS", kept.get("cmake_args", "")),
        "cpu": cpu_features(),
        "options": [*COMMON_OPTIONS, *BACKENDS[backend], *(["-DGGML_RPC=ON"] if rpc else [])],
        "hook": hashlib.sha256(HOOK.read_bytes()).hexdigest(),
    }


def backend_of(choice: dict[str, Any]) -> str:
    return choice["backend"] + (" + rpc" if choice["rpc"] else "")


def cpu_features() -> str:
    """What GGML_NATIVE compiles for."""
    if APPLE:
        return output("sysctl", "-n", "machdep.cpu.brand_string")
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open() as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return " ".join(sorted(filter(CPU_FEATURES.match, value.split())))
    return platform.processor()


def jobs() -> int:
    """Compiler processes at once: the CPUs this process may use, as far as memory allows."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = float("inf")
    with contextlib.suppress(OSError, ValueError):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        limit = Path("/sys/fs/cgroup/memory.max")
        if limit.exists() and (text := limit.read_text().strip()) != "max":
            memory = min(memory, int(text))
    return max(1, int(min(cpus or 1, memory / MEMORY_PER_JOB)))


def compiler() -> str:
    """The C++ compiler's name and version. Stops where there is none."""
    named = os.environ.get("CXX")
    for name in [named] if named else ["c++", "g++", "clang++"]:
        if version := output(*shlex.split(name), "--version"):
            return version.splitlines()[0]
    stop(
        (f"The C++ compiler in CXX ({named}) does not run. " if named else "No C++ compiler. ")
        + COMPILER_ADVICE
    )


def with_cuda_compiler(env: dict[str, str]) -> dict[str, str]:
    usual = "/usr/local/cuda/bin/nvcc"
    if not env.get("CUDACXX") and not shutil.which("nvcc") and Path(usual).exists():
        return {**env, "CUDACXX": usual}
    return env


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gguf-worker"


def wheel_of(choice: dict[str, Any], pip: list[str]) -> Path:
    """The wheel of the library as chosen: from the cache, or built now."""
    if choice["backend"] == "metal" and not APPLE:
        stop("BACKEND=metal needs macOS.")
    env = {"CMAKE_BUILD_PARALLEL_LEVEL": str(jobs()), **os.environ}
    if choice["backend"] == "cuda":
        env = with_cuda_compiler(env)
    variables = (*COMPILER_VARIABLES, *BACKEND_VARIABLES.get(choice["backend"], ()))
    shape = {
        **choice,
        "platform": f"{sys.platform} {platform.machine()}",
        "compiler": compiler(),
        "environment": {name: env[name] for name in variables if env.get(name)},
    }
    if choice["backend"] == "cuda":
        shape["nvcc"] = output(env.get("CUDACXX") or "nvcc", "--version")
        shape["gpus"] = output("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    key = hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]
    place = cache_directory() / "wheels" / key
    busy = "this library is being built by another install; waiting for it"
    with lock(place / "lock", busy, place / "build.log") as held:
        for made in filter(whole, place.glob("work-*/out/*.whl")):  # by one that was killed since
            made.replace(place / made.name)
        if not (wheels := list(place.glob("*.whl"))):
            (place / "shape.json").write_text(json.dumps(shape, indent=2))
            wheels = [build(place, choice, pip, env, held)]
        return wheels[0]


def build(
    place: Path, choice: dict[str, Any], pip: list[str], env: dict[str, str], held: int
) -> Path:
    """Compile under `place`; the wheel appears there whole or not at all."""
    log, resumable = place / "build.log", place / "resumable"
    # The name of a work directory whose processes have all ended. Any other one was left by a kill
    # and may still be written to: a new build takes a new name.
    left = resumable.read_text() if resumable.exists() else ""
    going_on = bool(left) and (place / left / "source").exists()
    resumable.unlink(missing_ok=True)
    work = place / left if going_on else Path(tempfile.mkdtemp(prefix="work-", dir=place))
    remove(path for path in place.glob("work-*") if path != work)
    source, objects, out = work / "source", work / "objects", work / "out"
    out.mkdir(exist_ok=True)
    named = f"{LIBRARY} {choice['version']} for {backend_of(choice)}"
    say(
        f"{'going on with' if going_on else 'building'} {named} from source, "
        f"{env['CMAKE_BUILD_PARALLEL_LEVEL']} at a time (log: {short(log)})"
    )
    started = time.monotonic()
    options = [*choice["options"], f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={HOOK}"]
    env["CMAKE_ARGS"] = f"{shlex.join(options)} {choice['cmake_args']}"
    try:
        if not going_on:
            requirement = f"{LIBRARY}=={choice['version']}"
            fetch = ["download", "--no-deps", "--no-binary", LIBRARY, "-d", str(out), requirement]
            run([*pip, *fetch], log, held, env)
            unpack(next(out.glob("*.tar.gz")), source)
        make = ["wheel", "-v", "--no-deps", "-C", f"build-dir={objects}", "-w", str(out)]
        run([*pip, *make, str(source)], log, held, env)
    except CommandError:
        if (objects / ".ninja_log").exists():
            resumable.write_text(work.name)
        else:
            remove([work])
        explain(log, f"Building {named}")
    except KeyboardInterrupt:
        resumable.write_text(work.name)
        raise
    built = next(out.glob("*.whl"))
    wheel = place / built.name
    built.replace(wheel)
    remove([work])
    say(f"built in {clock(time.monotonic() - started)}")
    return wheel


def whole(wheel: Path) -> bool:
    with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(wheel) as archive:
        return archive.testzip() is None
    return False


def remove(directories: Iterable[Path]) -> None:
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


def unpack(archive: Path, to: Path) -> None:
    """The sdist's one top folder becomes `to`."""
    parts = archive.parent / "unpacked"
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # not before Python 3.11.4
        tar.extractall(parts)  # noqa: S202
    archive.unlink()
    next(parts.iterdir()).replace(to)


# ---------------------------------------------------------------------------- the environment


class Environment:
    """A virtual environment and what is known to be in it (`gguf-worker.json`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.python = path / "bin" / "python"
        self.pip = [str(self.python), "-m", "pip"]
        self.lock = path / "install.lock"
        self.log = path / "install.log"
        self.record = path / "gguf-worker.json"
        self.state: dict[str, Any] = {}
        self.read()

    def read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.state = json.loads(self.record.read_text())

    def note(self, **changes: Any) -> None:
        self.state |= changes
        new = self.record.with_suffix(".new")
        new.write_text(json.dumps(self.state, indent=2))
        new.replace(self.record)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Whoever finds `clean` false comes after an install that was killed in the middle."""
        self.note(clean=False)
        with contextlib.suppress(CommandError):  # pip has then put back what was there
            yield
            self.note(clean=True)
            return
        self.note(clean=True)
        explain(self.log, "Installing packages")

    def usable(self) -> bool:
        if not self.state:  # made by hand: taken over if it works
            ask = "import pip, sys; print(sys.implementation.cache_tag)"
            return output(str(self.python), "-c", ask) == sys.implementation.cache_tag
        return (
            self.state.get("clean") is True
            and self.state.get("root") == str(ROOT)
            and self.state.get("python") == sys.implementation.cache_tag
            and self.python.exists()
        )

    def has(self, choice: dict[str, Any], packages: str, extras: list[str]) -> bool:
        return (
            bool(self.state)
            and self.usable()
            and self.state.get("library") == choice
            and self.state.get("packages") == packages
            and self.state.get("extras") == extras
        )

    def create(self, held: int) -> None:
        say(f"creating {self.path.name} with Python {platform.python_version()}")
        for entry in self.path.iterdir():
            if entry not in (self.lock, self.log, self.record):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self.state = {name: self.state[name] for name in ("wanted", "extras") if name in self.state}
        self.note(clean=False)
        base = getattr(sys, "_base_executable", sys.executable)  # not a venv's own python
        try:
            run([base, "-m", "venv", str(self.path)], self.log, held)
        except CommandError:
            print(excerpt(self.log), file=sys.stderr)
            stop(
                "Python could not make a virtual environment "
                "(Debian, Ubuntu: apt-get install python3-venv)."
            )
        self.note(clean=True)

    def install(self, arguments: list[str], held: int, **result: Any) -> None:
        with self.changing():
            run([*self.pip, "install", *arguments], self.log, held)
            self.note(**result)


def install(args: argparse.Namespace) -> None:
    started = time.monotonic()
    environment = Environment(ROOT / args.venv)
    packages = hashlib.sha256(
        (ROOT / "pyproject.toml").read_bytes() + CONSTRAINTS.read_bytes()
    ).hexdigest()

    def target() -> tuple[dict[str, Any], str, list[str]]:
        state = environment.state
        choice = wanted(args, state.get("wanted", {}))
        return choice, packages, sorted({*args.extra, *state.get("extras", [])})

    if environment.has(*target()):
        if not args.quiet:
            choice = target()[0]
            say(f"installed already: {LIBRARY} {choice['version']} for {backend_of(choice)}")
        return
    environment.path.mkdir(parents=True, exist_ok=True)
    busy = "another install is under way here; waiting for it"
    with lock(environment.lock, busy, environment.log) as held:
        environment.read()
        choice, _, extras = target()
        if environment.has(choice, packages, extras):
            say(f"installed meanwhile: {LIBRARY} {choice['version']} for {backend_of(choice)}")
            return
        if not environment.usable():
            environment.create(held)
        environment.note(root=str(ROOT), python=sys.implementation.cache_tag, clean=True)
        if environment.state.get("library") != choice:
            wheel = wheel_of(choice, environment.pip)
            environment.note(wanted={n: choice[n] for n in ("backend", "rpc", "cmake_args")})
            reinstall = ["--force-reinstall", "--no-deps", str(wheel)]
            environment.install(reinstall, held, library=choice)
        if not environment.has(choice, packages, extras):
            say("installing packages")
            names = f"[{','.join(extras)}]" if extras else ""
            environment.install(["-e", f"{ROOT}{names}"], held, packages=packages, extras=extras)
    say(
        f"ready after {clock(time.monotonic() - started)}: "
        f"{LIBRARY} {choice['version']} for {backend_of(choice)} in {environment.path.name}"
    )


def write_constraints() -> None:
    """Resolve everything anew (but not torch, which only the training script needs) and pin it."""
    tools = ["scikit-build-core", "cmake", "ninja", "hatchling", "editables"]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    done = subprocess.run(  # noqa: S603
        [*command, "--report", "-", f"{ROOT}[dev]", *tools],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
    )
    packages = [entry["metadata"] for entry in json.loads(done.stdout)["install"]]
    pins = {p["name"].lower().replace("_", "-"): p["version"] for p in packages}
    del pins["gguf-worker"]
    lines = ["# Written by `make constraints`: the worker, its tools and its build tools."]
    lines += [f"{name}=={version}" for name, version in sorted(pins.items())]
    CONSTRAINTS.write_text("\n".join(lines) + "\n")
    say(f"pinned {len(pins)} packages in {CONSTRAINTS.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Install what is missing into .venv.")
    parser.add_argument("--backend", choices=BACKENDS, help="default: as it is")
    parser.add_argument("--rpc", choices=("0", "1"), help="1 adds the RPC backend")
    parser.add_argument("--extra", action="append", default=[], help="dev or train")
    parser.add_argument("--venv", default=".venv")
    parser.add_argument("--quiet", action="store_true", help="no word when nothing is missing")
    parser.add_argument("--write-constraints", action="store_true", help="pin all versions anew")
    args = parser.parse_args()

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        write_constraints() if args.write_constraints else install(args)
    except KeyboardInterrupt:
        say("interrupted; the same command goes on from here")
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
