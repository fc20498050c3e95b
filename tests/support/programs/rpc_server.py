"""llama.cpp's RPC server in a process of its own.

`python -m tests.support.programs.rpc_server HOST:PORT [MiB]` runs one that computes on one thread
of the CPU, with at most so much memory; `RpcServer` is such a process.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator

START_TIMEOUT_S = 30.0


def free_port() -> int:
    """A port of loopback on which nobody listens now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class RpcServer:
    """A server on loopback; `address` is what --rpc takes."""

    def __init__(self, *, megabytes: int | None = None) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        words = [self.address, *([] if megabytes is None else [str(megabytes)])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.programs.rpc_server", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._wait_until_it_listens()
        except BaseException:
            self.end()
            raise

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def _wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        host, _, port = self.address.partition(":")
        while True:
            assert self.process.poll() is None, f"the RPC server ended: {self.lines}"
            assert time.monotonic() < deadline, f"the RPC server does not listen: {self.lines}"
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
                return
            time.sleep(0.02)

    def end(self) -> None:
        """Kill it, as a machine that goes away would."""
        self.process.kill()
        self.process.wait(10)
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextlib.contextmanager
def rpc_server(*, megabytes: int | None = None) -> Generator[RpcServer]:
    """A server that is gone afterwards."""
    server = RpcServer(megabytes=megabytes)
    try:
        yield server
    finally:
        server.end()


def main() -> None:
    """Serve until killed."""
    from worker import log
    from worker.llama import library, rpc_server

    log.configure("console")
    endpoint, *megabytes = sys.argv[1:]
    library.start()
    if megabytes:
        with open("/proc/self/statm") as statm:  # noqa: PTH123
            held = int(statm.read().split()[0]) * resource.getpagesize()
        limit = held + (int(megabytes[0]) << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    rpc_server.serve(endpoint, 1)


if __name__ == "__main__":
    main()
