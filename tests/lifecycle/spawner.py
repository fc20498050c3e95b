"""A manager that starts a worker with its own arguments, and waits: something to kill.

SPAWN_FROM=thread   start it from a thread that ends, as managers with thread pools do
STEP_SECONDS        start the worker of tests/support/programs/slow.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading


def spawn() -> None:
    """Start the worker; this process holds the other end of its standard input."""
    module = "tests.support.programs.slow" if "STEP_SECONDS" in os.environ else "worker"
    process = subprocess.Popen(
        [sys.executable, "-m", module, *sys.argv[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    running.append(process)


running: list[subprocess.Popen[bytes]] = []
if os.environ.get("SPAWN_FROM") == "thread":
    thread = threading.Thread(target=spawn)
    thread.start()
    thread.join()
else:
    spawn()
running[0].wait()
