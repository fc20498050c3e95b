"""`requirements.lock` is what `pyproject.toml` and `constraints.txt` ask for; offline."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.install.environment import Record, goal_of
from scripts.install.lock import EXTRAS, LOCK, entries, write_requirements
from scripts.install.source import UNUSED
from scripts.install.talk import InstallError

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONSTRAINTS = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines()[1:]
)
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}( \\)?")


def pins() -> dict[str, Requirement]:
    """Name -> the version that is locked, with its marker."""
    return {name: Requirement(text.partition(" \\")[0]) for name, text in ENTRIES.items()}


ENTRIES = entries(LOCK.read_text())
PINS = pins()


def test_it_satisfies_the_project() -> None:
    """Each dependency of the worker, of its extras in the lock and of its build is there, in a
    version that is allowed, and for all systems that it is asked for on."""
    project = PROJECT["project"]
    wanted = [*project["dependencies"], *PROJECT["build-system"]["requires"]]
    for extra in EXTRAS:
        wanted += project["optional-dependencies"][extra]
    built_with = (ROOT / "scripts" / "lock" / "build.in").read_text().splitlines()
    wanted += [line for line in built_with if not line.startswith("#")]
    assert len(wanted) > 15
    for text in wanted:
        asked = Requirement(text)
        pin = PINS[canonicalize_name(asked.name)]
        (exact,) = pin.specifier
        assert exact.operator == "=="
        assert asked.specifier.contains(exact.version), (text, str(pin))
        assert pin.marker is None or pin.marker == asked.marker, (text, str(pin))


def test_it_has_the_constraints_versions() -> None:
    """An install with hashes and one without take the same versions."""
    for name, pin in PINS.items():
        if name in CONSTRAINTS:
            assert str(pin.specifier) == f"=={CONSTRAINTS[name]}", name
    elsewhere = {name for name in PINS if name not in CONSTRAINTS}
    assert all(PINS[name].marker is not None for name in elsewhere), elsewhere


def test_every_file_has_a_hash() -> None:
    """Each package has hashes and nothing else: no address, so any index will do."""
    for name, text in ENTRIES.items():
        first, *hashes = [line.strip() for line in text.rstrip().splitlines()]
        assert first.startswith(f"{name}=="), name
        assert hashes, name
        assert all(HASH.fullmatch(line) for line in hashes), name
    assert "://" not in LOCK.read_text()
    assert "index" not in LOCK.read_text()


def test_the_library_is_taken_apart(tmp_path: Path) -> None:
    """It is built from source between the others and the worker."""
    library = write_requirements(tmp_path, library=True).read_text()
    assert list(entries(library)) == ["llama-cpp-python"]
    others = write_requirements(tmp_path, library=False).read_text()
    assert set(entries(others)) == set(ENTRIES) - {"llama-cpp-python"}


def test_locked_stays_locked() -> None:
    """Once it was asked for it holds until it is called off; a change of the lock is noticed."""
    locked = goal_of(Record(), "cpu", None, [], "1")
    assert locked.library.locked
    assert goal_of(locked, None, None, ["otel"]).library.locked
    assert not goal_of(locked, None, None, [], "0").library.locked
    plain = goal_of(Record(), "cpu", None, [])
    assert plain.build != locked.build
    assert plain.packages != locked.packages
    with pytest.raises(InstallError, match="extra dev"):
        goal_of(locked, None, None, ["dev"])


def test_nothing_is_locked_that_nobody_asks_for() -> None:
    """Each package is asked for by the worker, by what builds it, or by one that is, as their
    installed metadata say; only what a line of the bindings asks for and nothing imports is out."""
    built_with = (ROOT / "scripts" / "lock" / "build.in").read_text().splitlines()
    waiting = {canonicalize_name(line) for line in built_with if not line.startswith("#")}
    waiting |= {"gguf-worker"}
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        reached.add(name)
        try:
            wanted = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:  # of another system, or a build tool
            wanted = []
        for each in wanted:
            is_unused = name == "llama-cpp-python" and UNUSED.match(f'"{each.name}"')
            if not is_unused and (not each.marker or _applies(each.marker)):
                waiting |= {canonicalize_name(each.name)} - reached
    # What builds wheels is installed for the build alone; of those, tests have these too.
    known = {name for name in PINS if _is_installed(name)} - {"pluggy"}
    assert known - reached == set()
    assert "diskcache" not in PINS


def _applies(marker: Marker) -> bool:
    return any(marker.evaluate({"extra": extra}) for extra in ("", *EXTRAS, "standard"))


def _is_installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False
