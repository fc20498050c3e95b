"""A key that was given at the start, out of the places where others look.

The kernel shows a process's first words and variables to whoever may list processes (`ps e`). They
lie in the process's own memory, so it can write over them; Python has copied them before.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from worker import log
from worker.settings import OPTIONS

_KEY = next(option for option in OPTIONS if option.field == "api_key")
_STAT = Path("/proc/self/stat")
_MEMORY = Path("/proc/self/mem")
# arg_start, arg_end, env_start and env_end in what follows the name in that file (proc(5)).
_FIRST, _LAST = 45, 49
# A pipe that cores go to, as core_pattern can name one, is given them at a limit of 0 too; a limit
# of 1 stops that, and no file of one byte is written (core(5), fs/coredump.c).
_CORE_BYTES = 1


def protect_key() -> None:
    """`hide_key`, and no core file that would hold keys and prompts.

    The limit can be raised again from outside, as by `prlimit --core=unlimited --pid PID`.
    """
    is_hidden = hide_key()
    if any(word.partition("=")[0] in _KEY.flags for word in sys.orig_argv):
        log.get("keys").warning(
            "a key on the command line can be seen in process lists"
            + (" until now" if is_hidden else ""),
            hint="use --api-key-file",
        )
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    if most != 0:
        resource.setrlimit(resource.RLIMIT_CORE, (_CORE_BYTES, most))


def hide_key() -> bool:
    """Take the key out of the words and the variables of this process, and of its children's.

    To be called when the settings have been made. Returns whether nobody sees it any more; without
    /proc, as on macOS, a key in its own words is still seen.
    """
    for name in _KEY.variables:
        os.environ.pop(name, None)
    try:
        _overwrite()
    except OSError:
        return False
    return True


def _overwrite() -> None:
    bounds = _STAT.read_text().rpartition(")")[2].split()[_FIRST:_LAST]
    args_from, args_to, env_from, env_to = map(int, bounds)
    with _MEMORY.open("r+b", buffering=0) as memory:

        def region(start: int, end: int) -> bytes:
            memory.seek(start)
            return memory.read(end - start)

        words, variables = region(args_from, args_to), region(env_from, env_to)
        for start, places in (
            (args_from, _keys_in_words(words)),
            (env_from, _keys_in_variables(variables)),
        ):
            for first, last in places:
                memory.seek(start + first)
                memory.write(b"*" * (last - first))


def _keys_in_words(region: bytes) -> Iterator[tuple[int, int]]:
    """Where keys stand in words that end with a NUL: `--api-key KEY` or `--api-key=KEY`."""
    flags, before = [flag.encode() for flag in _KEY.flags], b""
    for start, word in _texts(region):
        name, equals, _ = word.partition(b"=")
        if before in flags:
            yield start, start + len(word)
        elif equals and name in flags:
            yield start + len(name) + 1, start + len(word)
        before = word


def _keys_in_variables(region: bytes) -> Iterator[tuple[int, int]]:
    names = [name.encode() for name in _KEY.variables]
    for start, text in _texts(region):
        name, equals, _ = text.partition(b"=")
        if equals and name in names:
            yield start + len(name) + 1, start + len(text)


def _texts(region: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    for text in region.split(b"\0"):
        yield start, text
        start += len(text) + 1
