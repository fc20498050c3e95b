"""The virtual environment, and what is installed in it."""

import contextlib
import json
import os
import shutil
import sys
import time
import tomllib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from scripts.install.build import Library, key_of, wheel_of
from scripts.install.commands import CONSTRAINTS, ROOT, locked, output_of, run
from scripts.install.lock import LOCK, check_extras, write_requirements
from scripts.install.proof import is_kept, next_without, prove
from scripts.install.source import NAME, fetch_templates, templates_folder
from scripts.install.talk import InstallError, say, since


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
            self.record = Record(**values | {"library": Library(**values["library"])})

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
        wheel = wheel_of(goal.library, [str(self.python), "-m", "pip"])
        self.install("Installing the library", ["--force-reinstall", "--no-deps", str(wheel)], goal)

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
    say("proving the library on this CPU")
    while True:
        started = time.monotonic()
        found = prove(environment.python)
        used = ", ".join(found.features) or "no special feature"
        if not found.problem:
            say(f"proven in {since(started)}, using {used}")
            environment.keep(replace(environment.record, proof=found.key))
            return goal
        without = next_without(goal.library.without, found.features)
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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    old = Library(backend=backend) if backend else record.library
    library = Library(
        next(pin.partition("==")[2] for pin in project["dependencies"] if f"{NAME}==" in pin),
        old.backend,
        old.rpc if rpc is None else rpc == "1",
        os.environ.get("CMAKE_ARGS", old.cmake_args),
        old.locked if lock is None else lock == "1",
        old.without,
    )
    packages = key_of(project, CONSTRAINTS.read_text())
    if library.locked:
        check_extras([*record.extras, *extra])
        packages = key_of(packages, LOCK.read_text() if LOCK.exists() else "")
    base = f"{ROOT} {sys.implementation.cache_tag}"
    return Record(
        library, sorted({*record.extras, *extra}), base, library.key, packages, record.proof
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
    with locked(environment.path / "lock", "another install is under way here; waiting for it"):
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
            environment.install_library(replace(goal, packages=""))
        if lacks_templates:
            fetch_templates(goal.library.version, [str(environment.python), "-m", "pip"])
        if environment.record != goal:
            say("installing packages")
            names = f"[{','.join(goal.extras)}]" if goal.extras else ""
            alone = ["--no-deps", "--no-build-isolation"] if goal.library.locked else []
            environment.install("Installing packages", [*alone, "-e", f"{ROOT}{names}"], goal)
            # pip compiles what it copies, not what it points to. Where Python may not write
            # bytecode, as in many containers, each start would compile the worker.
            output_of(str(environment.python), "-m", "compileall", "-q", str(ROOT / "worker"))
        goal = prove_library(environment, goal)
    say(f"ready after {since(started)}: {goal.library} in {environment.path.name}")


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
    lines = ["# Written by `make constraints`: the worker, its tools and its build tools."]
    lines += [f"{name}=={version}" for name, version in sorted(pins.items())]
    CONSTRAINTS.write_text("\n".join(lines) + "\n")
    say(f"pinned {len(pins)} packages in {CONSTRAINTS.name}")
