"""A worker that writes down what it opens, reaches for and starts, by Python's audit events.

`AUDIT=FILE python -m tests.support.programs.audited serve ...` starts one. A line of FILE is an
event and its arguments. What native code opens raises no event.
"""

from __future__ import annotations

import os
import sys

from worker.cli.main import run

EVENTS = (
    "open", "os.listdir", "os.scandir", "os.chdir", "os.mkdir", "os.rename", "os.remove", "os.link",
    "os.symlink", "os.truncate", "os.utime", "os.chmod", "shutil.", "glob.", "tempfile.", "os.exec",
    "os.posix_spawn", "os.fork", "os.system", "subprocess.", "socket.connect", "socket.sendto",
    "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname", "urllib.", "ftplib.",
    "http.client.connect", "ctypes.dlopen", "sqlite3.",
)  # fmt: skip

_file = os.open(os.environ["AUDIT"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event.startswith(EVENTS):
        os.write(_file, f"{event} {arguments!r}\n".encode(errors="backslashreplace"))


sys.addaudithook(_note)
sys.argv[0] = "worker"
run()
