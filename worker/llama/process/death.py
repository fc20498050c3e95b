"""When native code dies of a signal, a person reads a sentence, and not "Segmentation fault".

`faulthandler` writes the stacks into a file in memory, in the thread that died; then the handler
here tells of it and leaves. It is Python, which no handler of a fault should be: so an alarm ends
the process where it cannot go on, because that thread holds a lock.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable

from worker import log
from worker.errors import BackendError
from worker.llama.process import openmp
from worker.llama.signatures import AbortCallback

_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
_PATIENCE_S = 10  # until the process dies of the alarm instead
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)

# What is being done, and what to do when it fails: set by those who call native code.
_doing = ["it was loaded", "`make install` proves it again on this CPU."]
_last_words: list[Callable[[], object]] = []
_is_told = threading.Lock()
_stacks = -1


def note_task(what: str, hint: str = "") -> None:
    """From now on a native death happened while `what`, such as "it read the weights of m.gguf";
    `hint` is the next step. An exit of native code is told before the destructors of all that is
    loaded by now: other threads still use what these destroy."""
    _doing[:] = what, hint
    if _stacks >= 0:
        _tell_exits_first(ctypes.CDLL(None))


def at_death(call: Callable[[], object]) -> None:
    """Have this called before the process leaves for such a reason."""
    _last_words.append(call)


def watch() -> None:
    """Tell of native deaths from now on, and leave with the exit code of a BackendError.

    Nothing changes where faulthandler is in use already, as in tests.
    """
    global _stacks
    if faulthandler.is_enabled():
        return
    _stacks = _file_in_memory()
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    for number in _SIGNALS:  # faulthandler calls the handler that it finds
        libc.signal(number, ctypes.cast(_tell, ctypes.c_void_p))
    faulthandler.enable(file=_stacks, all_threads=True)
    _use_the_threads_own_stack(libc)
    _watch_exits(libc)


def _watch_exits(libc: ctypes.CDLL) -> None:
    """Native code may also call `exit`: libgomp does where the system gives it no thread. That
    calls what is registered here, until Python itself is about to leave."""
    if not hasattr(libc, "gnu_get_libc_version"):  # elsewhere it could not be taken back
        return
    libc.__cxa_finalize.argtypes, libc.__cxa_finalize.restype = [ctypes.c_void_p], None
    _tell_exits_first(libc)

    def end_watch() -> None:
        _is_leaving.set()
        libc.__cxa_finalize(ctypes.addressof(_owner))  # calls it, and forgets it

    atexit.register(end_watch)


def _tell_exits_first(libc: ctypes.CDLL) -> None:
    """The newest that is registered is called first."""
    if hasattr(libc, "gnu_get_libc_version"):
        libc.__cxa_atexit.argtypes = [ctypes.c_void_p] * 3
        libc.__cxa_atexit(ctypes.cast(_exits, ctypes.c_void_p), None, ctypes.addressof(_owner))


def _file_in_memory() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stacks")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class _Stack(ctypes.Structure):
    """stack_t, signal.h."""

    if sys.platform == "darwin":
        _fields_ = (("sp", ctypes.c_void_p), ("size", ctypes.c_size_t), ("flags", ctypes.c_int))
    else:
        _fields_ = (("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


def _use_the_threads_own_stack(libc: ctypes.CDLL) -> None:
    """faulthandler gives this thread a stack of 16 KiB for handlers, too small for ours."""
    disable = 4 if sys.platform == "darwin" else 2  # SS_DISABLE
    libc.sigaltstack(ctypes.byref(_Stack(sp=None, flags=disable, size=1 << 16)), None)


_owner, _is_leaving = ctypes.c_char(), threading.Event()


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _exits(_: object) -> None:
    if _is_leaving.is_set():
        return
    signal.alarm(_PATIENCE_S)
    try:
        for call in _last_words:
            call()
        told = openmp.variables()
        hint = (
            f"OpenMP was told {told}: unset it."
            if told
            else "Look at what the system grants: `ulimit -u`, `ulimit -v`, the cgroup's pids.max."
        )
        sentence = f"native code gave up while {_doing[0]}, and its own words are above. {hint}"
        log.fail("NATIVE_DEATH", sentence[:1].upper() + sentence[1:])
    finally:
        os._exit(BackendError.exit_code)


@_Handler
def _tell(number: int) -> None:
    ctypes.CDLL(None).signal(signal.SIGALRM, None)  # a parent may have had it ignored
    signal.alarm(_PATIENCE_S)
    if not _is_told.acquire(blocking=False):
        time.sleep(_PATIENCE_S)  # another thread died too, and tells
    try:
        name, (what, hint) = signal.Signals(number).name, _doing
        stacks = os.pread(_stacks, 1 << 20, 0).decode(errors="replace")
        log.get("native").error("native code died", signal=name, stacks=stacks)
        for call in _last_words:
            call()
        sentence = f"llama.cpp died of {name} while {what}."
        log.fail("NATIVE_DEATH", f"{sentence} {hint}".strip())
    finally:
        os._exit(BackendError.exit_code)


# "/a/b/llama.cpp/src/file.cpp:12: GGML_ASSERT(x) failed"
_MESSAGE = re.compile(r"(?:\S*/)?(\S+:\d+): (.*)")
_REPORT = "If a file or a request does that again, SECURITY.md says how to report it."


def leave_with_reason(lib: ctypes.CDLL) -> None:
    """From now on an abort is exit code 1 and a last line on stderr instead of a dead process.

    lib: the library with ggml's functions
    """
    lib.ggml_set_abort_callback(_leave)


@AbortCallback
def _leave(message: bytes) -> None:
    text = " ".join(message.decode(errors="replace").split())
    found = _MESSAGE.match(text)
    place, why = found.groups() if found else ("", text)
    is_remote = place.startswith("ggml-rpc")
    code = "RPC_SERVER" if is_remote else BackendError.default_code
    hint = "" if is_remote else f" {_REPORT}"
    os.write(2, f"error: {code}: llama.cpp gave up: {why} ({place}).{hint}\n".encode())
    os._exit(BackendError.exit_code)
