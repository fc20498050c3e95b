"""`--sandbox`: bounds that the process cannot leave any more, by Linux's Landlock.

Landlock binds the thread that asks for it and all that are started later. Only newer kernels bind
those that run already, so this is done before there is a second one, and before a byte of the
model is read: a file that would get the better of native code finds itself inside.
"""

from __future__ import annotations

import sys
from pathlib import Path

from worker import log
from worker.errors import UsageError
from worker.isolation.reach import SandboxReach

# The first one that has rules for TCP; Linux 6.7.
NEEDED = 4


def enter(reach: SandboxReach) -> None:
    """From now on this process opens, reaches and starts nothing but what `reach` names.

    Not even a program that it may read is started. Bytes that it has open stay open. Raises
    UsageError where the system cannot do that, or the folder cannot be made.
    """
    there = version()
    if there < NEEDED:
        has = f"has version {there}" if there else "has none"
        raise UsageError(
            "--sandbox needs Landlock with rules for TCP, which Linux has from 6.7 on; "
            f"this system {has}.",
            hint="Leave it out, or bound the worker from outside, as by a container.",
        )
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:  # a library that was imported before has started some
        raise UsageError(
            f"--sandbox binds no threads that run already, and there are {threads}.",
            hint="Start the worker by its command.",
        )
    _restrict(reach)
    log.get("sandbox").info(
        "from here on nothing else is reached",
        landlock=there,
        writes=list(reach.folders),
        listens=reach.listens,
        connects=list(reach.connects),
    )


def bound(reach: SandboxReach) -> None:
    """The same, where the system can do it; for a process of ours beside the worker."""
    if version() >= NEEDED:
        _restrict(reach)


def version() -> int:
    """Of the kernel's Landlock; 0: there is none."""
    if sys.platform != "linux":
        return 0
    import landlockpy

    return landlockpy.abi_version()


def _restrict(reach: SandboxReach) -> None:
    from landlockpy import AccessFS, AccessNet, Ruleset, Scope

    in_file = AccessFS.READ_FILE
    in_folder = in_file | AccessFS.READ_DIR
    kept = (
        in_folder | AccessFS.WRITE_FILE | AccessFS.TRUNCATE | AccessFS.REFER
        | AccessFS.MAKE_REG | AccessFS.MAKE_DIR | AccessFS.REMOVE_FILE | AccessFS.REMOVE_DIR
    )  # fmt: skip
    with Ruleset(
        handled_net=AccessNet.BIND_TCP | AccessNet.CONNECT_TCP,
        scoped=Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL,
    ) as rules:
        for path in reach.reads:
            rules.allow_path(path, in_folder if Path(path).is_dir() else in_file)
        for path in reach.devices:
            rules.allow_path(path, in_file | AccessFS.WRITE_FILE)
        for folder in reach.folders:
            rules.allow_path(_make(folder), kept)
        for folder in reach.sockets:
            made = AccessFS.READ_DIR | AccessFS.MAKE_SOCK | AccessFS.REMOVE_FILE
            rules.allow_path(folder, made)
        if reach.listens is not None:
            rules.allow_port(reach.listens, AccessNet.BIND_TCP)
        for port in reach.connects:
            rules.allow_port(port, AccessNet.CONNECT_TCP)
        rules.restrict()


def _make(folder: str) -> Path:
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}.") from None
    return place
