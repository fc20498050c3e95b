"""A request's way as its reader goes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from checks.turns.run import Call, Function


class Walk(msgspec.Struct, frozen=True):
    """stays: runs of steps in one file; returns: those in a file that was read before"""

    stays: int
    returns: int

    @property
    def files(self) -> int:
        return self.stays - self.returns


def walk_of(call: Call) -> Walk:
    """A reader goes into what a function calls and comes back to it, but follows no call from one
    function to another twice."""
    files: list[str] = []
    for file in _steps(call, set()):
        if not files or files[-1] != file:
            files.append(file)
    return Walk(len(files), len(files) - len(set(files)))


def _steps(call: Call, followed: set[tuple[Function, Function]]) -> Iterator[str]:
    yield call.function.file
    for each in call.calls:
        if (call.function, each.function) not in followed:
            followed.add((call.function, each.function))
            yield from _steps(each, followed)
            yield call.function.file


def climbs_of(call: Call) -> int:
    """How often its own file calls another one, and the way comes back up."""
    file = call.function.file
    return sum(
        each.function.file == file and below.function.file != file
        for each in call
        for below in each.calls
    )


def run_of(calls: Iterable[Call], file: str, name: str) -> Call:
    """The first run of a function. Raises LookupError where it did not run."""
    for each in calls:
        if each.function.file.endswith(file) and each.function.name == name:
            return each
    raise LookupError(f"{file}: {name} did not run")
