"""A worker that tries to get out of its bounds, in the thread that computes, while it serves.

`PROBES=JSON python -m tests.support.programs.escaping serve ...` starts one. PROBES are lists of a
name in TRIES and its arguments; at the engine's first step all are tried and logged as `escaped`
with, for each, None where it worked and else the kernel's error.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from worker import log
from worker.cli.main import run
from worker.lifecycle.worker import Worker


def connect(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), 5).close()


def listen(port: int) -> None:
    socket.create_server(("127.0.0.1", port)).close()


def connect_by_name(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("\0" + name)


def start_after_fork(program: str) -> None:
    """The way around Python's own start of programs."""
    child = os.fork()
    if child == 0:
        try:
            os.execv(program, [program])
        except OSError as error:
            os._exit(error.errno or 255)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))


def read(path: str) -> None:
    Path(path).read_bytes()


def write(path: str) -> None:
    Path(path).write_text("x")


def append(path: str) -> None:
    Path(path).open("ab").close()


def symlink(link: str, target: str) -> None:
    Path(link).symlink_to(target)


def start(program: str) -> None:
    subprocess.run([program], check=True)


TRIES: dict[str, Callable[..., object]] = {
    "read": read, "list": os.listdir, "write": write, "append": append, "rename": os.rename,
    "link": os.link, "symlink": symlink, "mkdir": os.mkdir, "connect": connect, "listen": listen,
    "connect_by_name": connect_by_name, "start": start, "start_after_fork": start_after_fork,
    "signal": os.kill,
}  # fmt: skip
AnyWorker: Any = Worker


def patch(self: Worker) -> Any:
    """In the thread that loads, which is inside of the bounds; llama.cpp is imported there."""
    from worker.llama.backend import LlamaBackend

    decode, warm_up = LlamaBackend.decode, LlamaBackend.warm_up

    def try_all(self: LlamaBackend) -> None:
        LlamaBackend.decode = decode
        found: list[str | None] = []
        for name, *arguments in json.loads(os.environ["PROBES"]):
            try:
                TRIES[name](*arguments)
                found.append(None)
            except OSError as error:
                found.append(errno.errorcode.get(error.errno or 0, repr(error)))
        log.get("test").info("escaped", found=found)
        decode(self)

    def then_try(self: LlamaBackend) -> Any:
        """The steps of the warm-up are not those of the engine's thread."""
        warm_up(self)
        LlamaBackend.decode = try_all

    LlamaBackend.warm_up = then_try
    return load(self)


load = AnyWorker._load
AnyWorker._load = patch
sys.argv[0] = "worker"
run()
