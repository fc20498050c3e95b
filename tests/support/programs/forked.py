"""Workers that begin as forks of a process that has imported all they need.

A start costs 0.7 s of CPU time, 0.5 s of it for imports, and the tests start hundreds.
`python -m tests.support.programs.forked FD` is that process. It has one thread, and ends when the
socket FD is closed, as it is when the process of the tests ends.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

_NUMBER = struct.Struct("i")
_MODULES = (
    "worker.cli.main",
    "worker.cli.model",
    "worker.cli.serve",
    "worker.service.app",
    "worker.service.gate",  # not the server, which looks at once whose child it is
    "worker.http.sockets",
    "worker.chat.jinja.sandbox",
    "llguidance",
    "encodings.idna",
    "worker.lifecycle.loading",
    # Litestar takes them where they are there, as they are beside the clients of the tests.
    "litestar.plugins.attrs",
    "litestar.plugins.pydantic",
    "litestar.middleware._internal.exceptions",
    "litestar._kwargs",
)


class ForkedProcess:
    """What the tests use of `subprocess.Popen`, of a fork that runs a module as `__main__`."""

    def __init__(self, module: str, arguments: tuple[str, ...], env: dict[str, str]) -> None:
        """env: all variables; the folder is that of this process."""
        asked = json.dumps([module, arguments, env, os.getcwd()]).encode()  # noqa: PTH109
        (out, stdout), (err, stderr), (said, say) = os.pipe(), os.pipe(), os.pipe()
        parent, socket_to_it = _parent()
        try:
            socket.send_fds(socket_to_it, [asked], [stdout, stderr, say])
        finally:
            for descriptor in (stdout, stderr, say):
                os.close(descriptor)
        self.stdout, self.stderr = open(out), open(err)  # noqa: PTH123, SIM115
        self._said = open(said, "rb", 0)  # noqa: PTH123, SIM115
        self.returncode: int | None = None
        self._lock = threading.Lock()
        pid = self._said.read(_NUMBER.size)
        assert pid, parent.communicate()
        self.pid = _NUMBER.unpack(pid)[0]

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, below 0 for a signal. Raises subprocess.TimeoutExpired."""
        if not select.select([self._said], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        with self._lock:
            code = self.returncode
            if code is None:
                code = self.returncode = int(_NUMBER.unpack(self._said.read(_NUMBER.size))[0])
            return code

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@functools.cache
def _parent() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process that forks, which is started by the first who asks, and our end of its socket.

    Its standard streams are pipes, as those of its forks are.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        parent = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
    return parent, ours


def _main(asked: socket.socket) -> None:
    for module in _MODULES:
        __import__(module)
    gc.collect()
    gc.freeze()
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        words, descriptors, _, _ = socket.recv_fds(asked, 1 << 20, 3)
        if not words:
            return None
        if os.fork() == 0:
            asked.close()
            return _become(words, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _become(words: bytes, stdout: int, stderr: int, said: int) -> None:
    """Fork once more, to say how that ended; there, run what was asked for."""
    if pid := os.fork():
        os.close(stdout)
        os.close(stderr)
        os.write(said, _NUMBER.pack(pid))
        _, status = os.waitpid(pid, 0)
        os.write(said, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
        return
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    for descriptor in (stdout, stderr, said):
        os.close(descriptor)
    module, arguments, env, folder = json.loads(words)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])))
