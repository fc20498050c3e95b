"""llama.cpp's compute threads, which are OpenMP's: how many a step gets, and how long waiting ones
spin: long on idle CPUs, short beside other busy processes.

A thread that waits for its team spins for a while, then sleeps. On idle CPUs spinning saves a
wake-up at each of the hundreds of barriers of a step. Beside a busy process the spinning thread
takes the CPU from the very thread that it waits for. A shared machine changes from one to the
other:

    Llama-1B shape, Q4_K_M, 2 threads on 2 CPUs, tok/s       idle    one process busy
    10,000 turns                                             39      8
    100 turns                                                29      24

Long is longer than the pause between two decodes, a quarter of a millisecond: else the threads are
woken for each token. One stream of a 125M shape writes 227 tok/s with 30,000 turns, and 207 with
10,000 that became 100 when two fifths of a thread waited (9 workers of each in turns, 2 CPUs, with
an SSE client on them).

libgomp reads the number of turns once, when it is loaded. But while it has more threads than there
are CPUs, it spins 100 turns at most (`gomp_throttled_spin_count_var`). So we park a thread that has
formed a team of its own: that shortens the spinning, and letting the thread go makes it long again.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from worker.llama.process.memory import maps

_RUNTIMES = ("libgomp", "libomp", "libiomp5")
_PREFIXES = ("OMP_", "GOMP_", "KMP_")
TASKS = "/proc/self/task"
_CHOSEN_BY_USER = any(name in os.environ for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"))
_LONG, _FIXED = "30000", "300"
# Seconds of decoding between two looks at how long compute threads waited for a CPU.
_INTERVAL_S = 0.1
# How many compute threads waited for a CPU, on average. Above the first number other processes are
# busy, below the second they are not. Measured on two CPUs: 0.01 to 0.05 alone, 0.03 to 0.4 beside
# our own event loop and its clients, 0.8 to 0.9 beside one busy process.
_SHARED, _ALONE = 0.5, 0.2
# Looks in a row that must find the same, before it is changed.
_BUSY_LOOKS, _CALM_LOOKS = 2, 5


def runtime(*names: str) -> ctypes.CDLL | None:
    """OpenMP as it is loaded in this process, of those names or of any; None where it is not."""
    for line in maps():
        path = os.fsdecode(line.split(maxsplit=5)[-1])
        if Path(path).name.startswith(names or _RUNTIMES):
            return ctypes.CDLL(path)
    return None


def granted_threads(threads: int) -> int:
    """How many of so many compute threads a step gets, at least 1: the user's variables may forbid
    some. llama.cpp asks for a team and computes with what it gets, so only OpenMP itself knows."""
    openmp = runtime()
    if openmp is None:
        return threads
    most = openmp.omp_get_thread_limit() if openmp.omp_get_max_active_levels() else 1
    places = openmp.omp_get_num_places()
    if places:  # CPUs that threads are bound to; with more threads than CPUs llama.cpp can hang
        most = min(most, sum(map(openmp.omp_get_place_num_procs, range(places))))
    return max(1, min(threads, most))


def variables(environ: Mapping[str, str] = os.environ) -> str:
    """What the user told OpenMP: `OMP_THREAD_LIMIT=1 OMP_PLACES={0}`, or nothing."""
    found = [name for name in sorted(environ) if name.startswith(_PREFIXES)]
    return " ".join(f"{name}={environ[name]}" for name in found)


def native_threads() -> list[int]:
    """Ids of the process's threads that Python does not know: those of libgomp, and of drivers."""
    ours = {thread.native_id for thread in threading.enumerate()}
    return [task for task in map(int, os.listdir(TASKS)) if task not in ours]  # noqa: PTH208


def waiting_ns() -> int | None:
    """Nanoseconds for which this thread and libgomp's waited for a CPU; None where the kernel does
    not count them.

    Python's other threads do not count: the event loop waits while all CPUs compute, and nobody
    waits for it at a barrier. It also saves half a millisecond for each look.
    """
    own = threading.get_native_id()
    total, is_counted = 0, False
    try:
        for task in [own, *native_threads()]:
            try:
                # With objects for paths it takes longer.
                descriptor = os.open(f"{TASKS}/{task}/schedstat", os.O_RDONLY)
            except (FileNotFoundError, ProcessLookupError):
                continue  # this thread has ended meanwhile, or no thread has such a file
            try:
                text = os.read(descriptor, 100)
            except ProcessLookupError:
                continue
            finally:
                os.close(descriptor)
            # Fields: time on a CPU, time waiting for one, time slices.
            on_cpu, waited, _ = text.split()
            total += int(waited)
            # A kernel that keeps no such statistics says that even this thread never ran.
            is_counted |= task == own and on_cpu != b"0"
    except (OSError, ValueError):
        return None
    return total if is_counted else None


def prepare() -> None:
    """Set the variable that libgomp reads when it is loaded, unless the user has set one.

    And take OMP_DYNAMIC from it: teams of any size would make lessons of nothing, and the number of
    threads that is told untrue. `--threads` says how many.
    """
    os.environ.pop("OMP_DYNAMIC", None)
    if not _CHOSEN_BY_USER:
        os.environ["GOMP_SPINCOUNT"] = _FIXED if waiting_ns() is None else _LONG


def drop_spin_variable() -> None:
    """libgomp has read the variable: a child process must not take it for the user's choice."""
    if not _CHOSEN_BY_USER:
        os.environ.pop("GOMP_SPINCOUNT", None)


class Spin:
    """Watches how long compute threads wait for a CPU, and makes libgomp spin short or long.

    threads     compute threads of the thread that decodes
    is_shared   whether others keep the CPUs busy, as far as it is known
    is_short    whether waiting threads go to sleep at once now
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.is_shared = self.is_short = False
        self._decoded = 0.0
        self._busy = self._calm = 0  # looks in a row that found neighbours, or none
        self._waited = waiting_ns()
        self._gomp = None if _CHOSEN_BY_USER or self._waited is None else _libgomp()
        self._release = threading.Event()

    def count_decode(self, seconds: float) -> None:
        """Count the seconds of one decode; after each _INTERVAL_S of them look and decide."""
        if self._gomp is None:
            return
        self._decoded += seconds
        if self._decoded < _INTERVAL_S:
            return
        share = self.displaced_share()
        self._busy = self._busy + 1 if share > _SHARED else 0
        self._calm = self._calm + 1 if share < _ALONE else 0
        # What takes the CPU once for a tenth of a second is over before a short spin helps, and
        # what is busy now and then does not change it each time.
        if self._busy >= _BUSY_LOOKS:
            self.is_shared = True
            if self.threads > 1:  # a thread alone waits for nobody
                self._shorten()
        elif self._calm == _CALM_LOOKS:
            self.is_shared = False
            self.close()

    def displaced_share(self) -> float:
        """How many compute threads waited for a CPU, on average over the decoding since the last
        call."""
        waited, before = waiting_ns(), self._waited
        share = 0.0
        if waited is not None and before is not None and self._decoded:
            # The count of a thread that has ended is lost, so the difference can be negative.
            share = max(0, waited - before) / 1e9 / self._decoded
        self._waited, self._decoded = waited, 0.0
        return share

    def form_team(self) -> None:
        """In the thread that will decode: make its compute threads, which sleep until it does.

        Otherwise the first step does, and a thread that is made while two CPUs are wanted may begin
        on the CPU of the one that waits for it, which makes the step many times as long.
        """
        if self._gomp is not None and self.threads > 1:
            _form_team(self._gomp, self.threads)

    def _shorten(self) -> None:
        if self.is_short:
            return
        self.is_short = True
        self._release = threading.Event()
        parked = threading.Event()
        arguments = (self._gomp, self.threads, self._release, parked)
        threading.Thread(target=_park, args=arguments, name="spin", daemon=True).start()
        parked.wait()

    def close(self) -> None:
        """Let the parked thread go; safe to call again."""
        self._release.set()
        self.is_short = False
        self._calm = 0


def _park(
    gomp: ctypes.CDLL, threads: int, release: threading.Event, parked: threading.Event
) -> None:
    """Form a team, and keep it until released, so that libgomp has more threads than CPUs."""
    # This thread itself does not count.
    _form_team(gomp, max(2, gomp.omp_get_num_procs() - threads + 2))
    parked.set()
    release.wait()


def _form_team(gomp: ctypes.CDLL, size: int) -> None:
    # A team needs a function to run. This one only answers a question and ignores its argument.
    gomp.GOMP_parallel(ctypes.cast(gomp.omp_get_num_threads, ctypes.c_void_p), None, size, 0)


def _libgomp() -> ctypes.CDLL | None:
    """The libgomp that is loaded in this process, or None when llama.cpp was built without it."""
    gomp = runtime("libgomp")
    if gomp is not None:
        pointer, count = ctypes.c_void_p, ctypes.c_uint
        gomp.GOMP_parallel.argtypes = [pointer, pointer, count, count]
        gomp.GOMP_parallel.restype = None
    return gomp
