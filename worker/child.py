"""A module of ours in a process of its own, for what computes apart: its memory is its own, a fault
of native code there is an error here, and what takes too long can be ended.

The parent holds a `Child`, the child a `Parent`. They exchange frames, bytes behind their length,
over the child's standard input and output. Its input ends with the parent, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

_LENGTH = struct.Struct("<I")
_READ_BYTES = 1 << 20
_LAST_BYTES = 8192  # of standard error
_PATIENCE_S = 5.0  # for a process that is about to end
_FAULT = re.compile(r"NATIVE_DEATH: llama\.cpp died of (\w+)")
# Signals that tell of native code; any other tells of the machine.
_FAULTS = (signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT)


def command(module: str, *words: str) -> list[str]:
    """Runs a module of ours. With -P a folder named `worker` in the current one is not ours."""
    return [sys.executable, "-P", "-m", module, *words]


class ProcessEnd(msgspec.Struct, frozen=True):
    """How a process ended.

    code  its exit code; negative: the number of the signal
    last  its last line on standard error; "": none
    """

    code: int
    last: str = ""

    @property
    def fault(self) -> str | None:
        """The signal that native code died of, if it did."""
        if told := _FAULT.search(self.last):
            return told[1]
        return signal.Signals(-self.code).name if -self.code in _FAULTS else None

    def __str__(self) -> str:
        """Such as "SIGKILL" or "exit code 1: the last line"."""
        if self.code == -signal.SIGKILL:
            how = "SIGKILL, perhaps out of memory"
        else:
            how = signal.Signals(-self.code).name if self.code < 0 else f"exit code {self.code}"
        return f"{how}: {self.last.rstrip('.')[:300]}" if self.last else how


class Child:
    """The process, from the parent's side. One thread at a time may call it, any may `close` it.

    It has a session of its own, so that Ctrl-C in a terminal reaches the parent alone.
    """

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(  # noqa: S603  (our own module)
            command(module), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, env=environment, bufsize=0,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._input = self._process.stdin
        self._output, self._errors = self._process.stdout, self._process.stderr
        self._received, self._last = bytearray(), b""
        self._open = {self._output.fileno(), self._errors.fileno()}
        self._ready = select.poll()
        for descriptor in self._open:
            self._ready.register(descriptor, select.POLLIN)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, frame: bytes) -> None:
        """A child that has ended takes none, which `receive` shows."""
        with contextlib.suppress(OSError, ValueError):
            _write(self._input.fileno(), frame)

    def receive(self, within_s: float | None = None) -> bytes | None:
        """Its next frame; None: it has ended. Raises TimeoutError."""
        deadline = None if within_s is None else time.monotonic() + within_s
        while (frame := self._next_frame()) is None:
            if self._output.closed or self._output.fileno() not in self._open:
                return None
            self._read(deadline)
        return frame

    def _next_frame(self) -> bytes | None:
        """The first of what was received, if it is whole."""
        if len(self._received) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
        if len(self._received) < end:
            return None
        frame = bytes(self._received[_LENGTH.size : end])
        del self._received[:end]
        return frame

    def _read(self, deadline: float | None) -> None:
        """Wait for what comes next on either pipe. Raises TimeoutError."""
        left = None if deadline is None else 1000 * max(0.0, deadline - time.monotonic())
        found = self._ready.poll(left)
        if not found:
            raise TimeoutError
        for descriptor, _ in found:
            data = os.read(descriptor, _READ_BYTES)
            if not data:
                self._ready.unregister(descriptor)
                self._open.remove(descriptor)
            elif descriptor == self._output.fileno():
                self._received += data
            else:
                self._last = (self._last + data)[-_LAST_BYTES:]

    def ending(self) -> ProcessEnd:
        """How it ended; where it does not by itself, soon, it is ended."""
        deadline = time.monotonic() + _PATIENCE_S
        with contextlib.suppress(TimeoutError, subprocess.TimeoutExpired):
            while self._open and time.monotonic() < deadline:
                self._read(deadline)
            self._process.wait(_PATIENCE_S)
        self.close()
        lines = self._last.decode(errors="replace").strip().splitlines()
        return ProcessEnd(self._process.returncode, lines[-1].strip() if lines else "")

    def close(self) -> None:
        """End it and what it started; safe to call again."""
        self._input.close()
        if self._process.poll() is None:
            with contextlib.suppress(OSError):  # inside of --sandbox its input's end must do
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_S)
        self._output.close()
        self._errors.close()
        self._open.clear()


class Parent:
    """The process that started this one, from the child's side."""

    def __init__(self) -> None:
        # What native code prints must not come between the frames.
        self._output = os.dup(1)
        os.dup2(2, 1)

    def receive(self) -> bytes | None:
        """Its next frame, and no byte of what follows; None: it has ended."""
        head = _read(_LENGTH.size)
        return None if head is None else _read(_LENGTH.unpack(head)[0])

    def has_sent(self, within_s: float | None = None) -> bool:
        """Wait until a frame or the end is there, or time is over: whether it is a frame."""
        waiting = select.poll()
        waiting.register(0, select.POLLIN)
        found = waiting.poll(None if within_s is None else 1000 * within_s)
        return bool(found and found[0][1] & select.POLLIN)

    def send(self, frame: bytes) -> None:
        """Raises BrokenPipeError where it has ended."""
        _write(self._output, frame)

    def leave_with(self, last: Callable[[], object] = lambda: None) -> None:
        """From now on this process ends with its parent, after a call of `last`; nothing else is
        received."""

        def watch() -> None:
            try:
                while os.read(0, _READ_BYTES):
                    pass
                last()
            finally:
                os._exit(1)

        threading.Thread(target=watch, name="parent", daemon=True).start()


def bound_memory(more: int) -> None:
    """Let this process take so many bytes more than it has, where the system can tell those."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _read(count: int) -> bytes | None:
    """From standard input; None where it ends before."""
    data = bytearray()
    while len(data) < count:
        more = os.read(0, min(count - len(data), _READ_BYTES))
        if not more:
            return None
        data += more
    return bytes(data)


def _write(descriptor: int, frame: bytes) -> None:
    view = memoryview(_LENGTH.pack(len(frame)) + frame)
    while view:
        view = view[os.write(descriptor, view) :]
