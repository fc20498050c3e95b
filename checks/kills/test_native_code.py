"""Native code that dies of a signal: a sentence and an exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.models import ggufs
from tests.support.programs import planted
from tests.support.programs.processes import PATIENCE_S, Server
from worker.demo import MODEL_PATH
from worker.errors import BackendError
from worker.llama import library, soundness

_WATCHED = """
import ctypes, os, sys, threading
from worker.llama.process import death
death.watch()
death.note_task("it computed with m.gguf (Q4_K)", "Look at it.")
"""
_FAULTS = {
    "here": "ctypes.CDLL(None).strlen(ctypes.c_void_p(8))",
    "with Python's lock": "ctypes.PyDLL(None).strlen(ctypes.c_void_p(8))",
    "in a thread": (
        "threading.Thread(target=ctypes.CDLL(None).strlen, args=[ctypes.c_void_p(8)]).start();"
        "threading.Event().wait()"
    ),
    "in several at once": (
        "fault = lambda: ctypes.CDLL(None).strlen(ctypes.c_void_p(8));"
        "[threading.Thread(target=fault).start() for _ in range(4)]; threading.Event().wait()"
    ),
    "in a thread of another's": (
        "thread = ctypes.c_ulong(); libc = ctypes.CDLL(None);"
        "libc.pthread_create(ctypes.byref(thread), None, libc.strlen, ctypes.c_void_p(8));"
        "threading.Event().wait()"
    ),
}


@pytest.mark.parametrize("fault", _FAULTS.values(), ids=_FAULTS)
def test_a_fault_ends_with_a_sentence(fault: str) -> None:
    """Exit code 1; the stacks are in the log, the last line says what was being done."""
    child = subprocess.run(
        [sys.executable, "-c", _WATCHED + fault],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert child.returncode == BackendError.exit_code
    *log, last = child.stderr.splitlines()
    assert last == (
        "error: NATIVE_DEATH: llama.cpp died of SIGSEGV while it computed with m.gguf (Q4_K). "
        "Look at it."
    )
    assert any("native code died" in line and "most recent call first" in line for line in log)


@pytest.mark.parametrize("number", [signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT])
def test_each_signal_is_named(number: signal.Signals) -> None:
    """The word for it is the one that people look for."""
    child = subprocess.run(
        [sys.executable, "-c", f"{_WATCHED}os.kill(os.getpid(), {number:d}); os.read(0, 1)"],
        stdin=subprocess.PIPE,
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert child.returncode == BackendError.exit_code
    assert f"llama.cpp died of {number.name} while" in child.stderr.splitlines()[-1]


def test_who_can_tell_nothing_still_ends() -> None:
    """A thread that died with a lock which telling needs is ended by an alarm, also where the
    parent had that ignored."""
    stuck = (
        "import signal; signal.signal(signal.SIGALRM, signal.SIG_IGN);"
        "death._PATIENCE_S = 1; death.at_death(lambda: threading.Event().wait());"
    )
    child = subprocess.run(
        [sys.executable, "-c", f"{_WATCHED}{stuck}{_FAULTS['here']}"],
        capture_output=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert child.returncode == -signal.SIGALRM


@planted.needs_preload
def test_a_serving_worker_says_of_what_it_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the midst of an answer: the file, its encodings, what to do; and the library is proven
    again by the next start."""
    proven = library.proof().verdict()
    env = planted.kernel(tmp_path, "ggml_vec_dot_f16", planted.CRASH_LATER)
    env["XDG_CACHE_HOME"] = str(tmp_path)
    monkeypatch.setattr(soundness, "_folders", lambda: [tmp_path / "gguf-worker" / "proofs"])
    monkeypatch.setenv("LD_PRELOAD", env["LD_PRELOAD"])
    key = soundness.key(library.build().variant)
    soundness.remember(key, proven)
    server = Server(env=env)
    try:
        server.wait_until_ready()
        (tmp_path / "now").touch()
        with pytest.raises(httpx.HTTPError):
            server.post({"prompt": "One day", "max_tokens": 5})
        code = server.wait()
    finally:
        server.end()
    assert code == BackendError.exit_code
    assert server.lines[-1] == (
        f"error: NATIVE_DEATH: llama.cpp died of SIGSEGV while it computed with {MODEL_PATH.name} "
        f"(F16, F32). Look at the file with `worker check --deep {MODEL_PATH}`; `make install` "
        "proves llama.cpp on this CPU again."
    )
    assert "stacks" in server.logged("native code died")
    assert soundness.recall(key) is None


@planted.needs_preload
def test_a_quantiser_that_dies_names_the_tensor(tmp_path: Path) -> None:
    """`worker quantize` says which tensor of which file it was, and leaves nothing behind."""
    source = ggufs.write_llama(tmp_path / "f32.gguf", embedding=256, feed_forward=512)
    command = [sys.executable, "-m", "worker", "quantize", str(source), str(tmp_path / "q.gguf")]
    child = subprocess.run(
        [*command, "Q4_0"], env=planted.quantizer(tmp_path), capture_output=True, text=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert child.returncode == BackendError.exit_code
    last = child.stderr.splitlines()[-1]
    assert last.startswith("error: NATIVE_DEATH: llama.cpp died of SIGSEGV while it quantized ")
    assert ".weight of f32.gguf" in last
    assert not (tmp_path / "q.gguf").exists()
