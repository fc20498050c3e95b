"""A manager that starts a worker with its own arguments, and waits: something to kill.

SPAWN_FROM=thread   start it from a thread that ends, as managers with thread pools do
STEP_SECONDS        start the worker of tests/support/programs/slow.py
"""

from __future__ import annotations

import os
import runpy
import threading


def spawn() -> None:
    """Start the worker; this process holds the other end of its standard input."""
    module = "tests.support.programs.slow" if "STEP_SECONDS" in os.environ else "worker"
    stdin, held = os.pipe()
    if pid := os.fork():
        os.close(stdin)
        running.append(pid)
        return
    os.close(held)
    os.dup2(stdin, 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    os._exit(0)


running: list[int] = []
if os.environ.get("SPAWN_FROM") == "thread":
    thread = threading.Thread(target=spawn)
    thread.start()
    thread.join()
else:
    spawn()
os.waitpid(running[0], 0)
