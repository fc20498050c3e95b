"""A worker that leaks: what proves that a leak is seen.

`python -m checks.soak.leaking serve ...`: of each body that it reads it keeps a descriptor, and it
keeps PLANTED bytes every PAUSE_S, however often it is asked: 108,000 MB an hour.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from worker.api.intake.preparing import Body, HttpRequest, Preparing
from worker.cli.main import run

PLANTED, PAUSE_S = 600_000, 0.02
_kept: list[bytes] = []
_body = Preparing.body


async def _leaking_body(self: Preparing, request: HttpRequest, shape: type[Body]) -> Body:
    os.open(os.devnull, os.O_RDONLY)
    return await _body(self, request, shape)


def _leak() -> None:
    while True:
        _kept.append(b"x" * PLANTED)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    Preparing.body = _leaking_body
    threading.Thread(target=_leak, daemon=True).start()
    sys.argv[0] = "worker"
    run()
