"""The virtual environment, and what is installed in it."""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
import tomllib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from scripts.install.build import DEFAULT_BACKEND, Library, cpu_features, key_of, wheel_of
from scripts.install.commands import CONSTRAINTS, ROOT, hold_lock, output_of, run
from scripts.install.lock import LOCK, check_extras, write_requirements
from scripts.install.proof import is_kept, next_without, prove
from scripts.install.source import NAME, fetch_templates, templates_folder
from scripts.install.talk import InstallError, say, since
from scripts.install.upstream import Upstream, find

# `--extra fleet` installs the distribution in that folder beside the worker.
FLEET_EXTRA = "fleet"
FLEET = ROOT / "fleet"
LLAMA_CPP = "LLAMA_CPP"  # names another llama.cpp: see `find`
WHEELS = "GGUF_WORKER_WHEELS"  # names a folder or URL where the library lies built


@dataclass(frozen=True)
class Record:
    """What was asked for, and keys of what is there: empty where it is missing or half made."""

    library: Library = field(default_factory=Library)
    extras: list[str] = field(default_factory=list[str])
    base: str = ""  # the checkout and the Python
    build: str = ""
    packages: str = ""
    proof: str = ""


class Environment:
    """A virtual environment with its record in `gguf-worker.json`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.python = path / "bin" / "python"
        self.log = path / "install.log"
        self.file = path / "gguf-worker.json"
        self.record = Record()
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            values = json.loads(self.file.read_text())
            library = values["library"]
            if library.get("upstream"):
                library["upstream"] = Upstream(**library["upstream"])
            self.record = Record(**values | {"library": Library(**library)})

    def keep(self, record: Record) -> None:
        """Write the record; half a record is read as an empty one."""
        self.file.write_text(json.dumps(asdict(record), indent=2))
        self.record = record

    def create(self, base: str) -> None:
        """Make it anew; one without a record was made by hand: it is kept and completed."""
        say(f"creating {self.path.name} with Python {sys.version.split()[0]}")
        for entry in self.path.iterdir():
            if self.file.exists() and entry.name not in ("lock", self.log.name, self.file.name):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self.keep(Record(self.record.library, self.record.extras))
        python = getattr(sys, "_base_executable", sys.executable)  # not another environment's
        run("Making the environment", [python, "-m", "venv", str(self.path)], self.log)
        self.keep(replace(self.record, base=base))

    def install_library(self, goal: Record) -> None:
        """Build or find the goal's library and install it; the record is then `goal`."""
        with tempfile.TemporaryDirectory("", "wheel-", self.path) as folder:
            wheel = str(_wheel(goal.library, self, Path(folder)))
            self.install("Installing the library", ["--force-reinstall", "--no-deps", wheel], goal)

    def install(self, doing: str, arguments: list[str], goal: Record) -> None:
        """Let pip install; the record is then `goal`. Raises InstallError."""
        self.keep(Record(goal.library, goal.extras))
        try:
            run(doing, [str(self.python), "-m", "pip", "install", *arguments], self.log)
        except InstallError:  # pip has put back what it had replaced
            self.keep(replace(self.record, base=goal.base))
            raise
        self.keep(goal)


def prove_library(environment: Environment, goal: Record) -> Record:
    """See that the library computes rightly here; build it anew without a feature that it fails
    with, as often as that helps. Returns what is there then. Raises InstallError."""
    say("self-test of the library on this CPU")
    while True:
        started = time.monotonic()
        found = prove(environment.python)
        used = ", ".join(found.features) or "no special feature"
        if not found.problem:
            say(f"self-test passed in {since(started)}, using {used}")
            environment.keep(replace(environment.record, proof=found.key))
            return goal
        if found.at_load:
            environment.keep(replace(goal, build=""))
            raise InstallError(
                f"The library cannot be loaded: it {found.problem}, so no feature of this CPU is "
                "the cause. Its shared libraries do not fit each other or this system: install "
                "libstdc++.so (Debian, Ubuntu: libstdc++6), or name another compiler (CXX=...)."
            )
        # A wheel has other variants to take, and its proof has tried them all.
        left = next_without(goal.library.without, found.features, cpu_features())
        without = [] if goal.library.wheels else left
        if not without:
            environment.keep(replace(goal, build=""))
            raise InstallError(
                f"The library is not sound on this CPU: it {found.problem}. Try another compiler "
                "(CXX=...), and report it as SECURITY.md says."
            )
        say(f"the library is not sound here: it {found.problem}; trying without {without[-1]}")
        library = replace(goal.library, without=without)
        goal = replace(goal, library=library, build=library.key)
        environment.install_library(goal)


def goal_of(
    record: Record,
    backend: str | None,
    rpc: str | None,
    extra: list[str],
    lock: str | None = None,
) -> Record:
    """Return what is to be there: what is asked for, and else what was asked for before.

    A backend replaces all of that: `BACKEND=cpu` after `RPC=1` builds without RPC. Raises
    InstallError for extras that a locked install does not have.
    """
    old = Library(backend=backend) if backend else record.library
    library = Library(
        pinned_version(),
        old.backend,
        old.rpc if rpc is None else rpc == "1",
        os.environ.get("CMAKE_ARGS", old.cmake_args),
        old.locked if lock is None else lock == "1",
        old.without,
        wheels=_place(os.environ.get(WHEELS, old.wheels)),
        mtmd=os.environ.get("MTMD", "1" if old.mtmd else "0") != "0",
        upstream=find(os.environ[LLAMA_CPP]) if LLAMA_CPP in os.environ else old.upstream,
    )
    if library.wheels:
        _check_unbuilt(library)
    extras = sorted({*record.extras, *extra})
    projects = [ROOT, *([FLEET] if FLEET_EXTRA in extras else [])]
    packages = key_of(*map(_project, projects), CONSTRAINTS.read_text())
    if library.locked and library.upstream:
        raise InstallError(
            "LOCKED=1 takes nothing without a known hash, and LLAMA_CPP names a source of your "
            "own: leave one of them out (LLAMA_CPP=pinned, LOCKED=0)."
        )
    if library.locked:
        check_extras(extras)
        packages = key_of(packages, LOCK.read_text() if LOCK.exists() else "")
    base = f"{ROOT} {sys.implementation.cache_tag}"
    return Record(library, extras, base, library.key, packages, record.proof)


def _project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


def pinned_version() -> str:
    """The version of the library that the worker needs."""
    pins = _project(ROOT)["dependencies"]
    return next(pin.partition("==")[2] for pin in pins if f"{NAME}==" in pin)


def _place(wheels: str) -> str:
    return str(Path(wheels).resolve()) if wheels and "://" not in wheels else wheels


def _check_unbuilt(library: Library) -> None:
    """Raise InstallError for what would shape a build, where a wheel is taken as it is."""
    asked = {
        f"BACKEND={library.backend}": library.backend != DEFAULT_BACKEND,
        "RPC=1": library.rpc,
        "CMAKE_ARGS": bool(library.cmake_args),
        "LOCKED=1": library.locked,
        "MTMD=0": not library.mtmd,
        "LLAMA_CPP": library.upstream is not None,
    }
    for name in (name for name, is_asked in asked.items() if is_asked):
        raise InstallError(
            f"{WHEELS} takes a wheel as it is, and {name} asks for a build: leave one of them out "
            f"({WHEELS}= forgets the place)."
        )


def install(
    venv: str,
    backend: str | None,
    rpc: str | None,
    extra: list[str],
    quiet: bool,
    lock: str | None = None,
) -> None:
    """Bring the environment in the folder `venv` to what is asked for. Raises InstallError."""
    started = time.monotonic()
    environment = Environment(ROOT / venv)
    goal = goal_of(environment.record, backend, rpc, extra, lock)
    lacks_templates = "dev" in goal.extras and not templates_folder(goal.library.version).exists()
    is_there = environment.record == goal and environment.python.exists()
    is_there = is_there and is_kept(environment.path, goal.proof)
    if is_there and not lacks_templates:
        if not quiet:
            say(f"installed already: {goal.library}")
        return
    with hold_lock(environment.path / "lock", "another install is under way here; waiting for it"):
        environment = Environment(environment.path)  # which another installer may have changed
        goal = goal_of(environment.record, backend, rpc, extra, lock)
        if environment.record.base != goal.base or not environment.python.exists():
            environment.create(goal.base)
        if goal.library.locked and environment.record != goal:
            say(f"installing packages with the hashes of {LOCK.name}")
            packages = write_requirements(environment.path, library=False)
            arguments = ["--require-hashes", "--no-deps", "--requirement", str(packages)]
            made = replace(goal, build=environment.record.build, packages="")
            environment.install("Installing locked packages", arguments, made)
        if environment.record.build != goal.build:
            goal = replace(goal, proof="")
            environment.install_library(replace(goal, packages=""))
        if lacks_templates:
            fetch_templates(goal.library.version, [str(environment.python), "-m", "pip"])
        if environment.record != goal:
            say("installing packages")
            extras = [name for name in goal.extras if name != FLEET_EXTRA]
            names = f"[{','.join(extras)}]" if extras else ""
            editable = ["-e", f"{ROOT}{names}"]
            if FLEET_EXTRA in goal.extras:
                editable += ["-e", str(FLEET)]
            alone = ["--no-deps", "--no-build-isolation"] if goal.library.locked else []
            environment.install("Installing packages", [*alone, *editable], goal)
            # pip compiles what it copies, not what it points to. Where Python may not write
            # bytecode, as in many containers, each start would compile the worker.
            output_of(str(environment.python), "-m", "compileall", "-q", str(ROOT / "worker"))
        if not is_kept(environment.path, goal.proof):
            goal = prove_library(environment, goal)
    say(f"ready after {since(started)}: {goal.library} in {environment.path.name}")


def _wheel(library: Library, environment: Environment, folder: Path) -> Path:
    """The library's wheel: built here, or brought into the folder. Raises InstallError."""
    pip = [str(environment.python), "-m", "pip"]
    if not library.wheels:
        return wheel_of(library, pip)
    say(f"fetching {library}")
    links = ["--no-index", "--find-links", library.wheels, "--only-binary", NAME, "--no-deps"]
    pin = f"{NAME}=={library.version}"
    try:
        run("Fetching", [*pip, "download", *links, "--dest", str(folder), pin], environment.log)
    except InstallError as error:
        raise InstallError(
            f"There is no {library} for this machine (log: {environment.log}): `make wheel` writes "
            f"one into dist/, and with an empty {WHEELS}= the library is built here."
        ) from error
    return next(folder.glob("*.whl"))


def write_constraints() -> None:
    """Pin the newest versions, but not torch, which only the training of the demo model needs."""
    packages = [f"{ROOT}[dev]", "scikit-build-core", "cmake", "ninja", "hatchling", "editables"]
    options = ["--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    command = [sys.executable, "-m", "pip", "install", *options, *packages]
    if not (report := output_of(*command)):
        raise InstallError(f"pip could not choose versions; this says why: {' '.join(command)}")
    found = [entry["metadata"] for entry in json.loads(report)["install"]]
    pins = {each["name"].lower().replace("_", "-"): each["version"] for each in found}
    del pins["gguf-worker"]
    pins.pop("diskcache", None)  # see `source.UNUSED`
    lines = ["# Written by `make constraints.txt`: the worker, its tools and its build tools."]
    lines += [f"{name}=={version}" for name, version in sorted(pins.items())]
    CONSTRAINTS.write_text("\n".join(lines) + "\n")
    say(f"pinned {len(pins)} packages in {CONSTRAINTS.name}")
