"""Imports without what a library would bring along, whoever imports at the same time."""

from __future__ import annotations

import subprocess
import sys

THREADS = """
import sys, threading
from worker import log
log.configure("json")
sys.setswitchinterval(1e-6)
begin, failed = threading.Barrier(8), []

def first_line():
    begin.wait()
    try:
        log.get("a").debug("a line")
    except BaseException as error:
        failed.append(error)

threads = [threading.Thread(target=first_line) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
import rich  # was missing meanwhile only
sys.exit(repr(failed) if failed else 0)
"""


def test_first_lines_of_many_threads() -> None:
    """Each is written, and what was left out is there again."""
    done = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
