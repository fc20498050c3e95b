"""A worker that leaks: what proves that a leak is seen.

`python -m tests.soak.leaking serve ...`: of each body that it reads it keeps PLANTED bytes and a
descriptor.
"""

from __future__ import annotations

import os
import sys

from worker.cli.main import run
from worker.lifecycle.loaded import Loaded
from worker.service.preparing import Body, HttpRequest, Preparing

PLANTED = 16_000_000
_kept: list[tuple[bytes, int]] = []
_body = Preparing.body


async def _leaking_body(
    self: Preparing, request: HttpRequest, shape: type[Body], loaded: Loaded
) -> Body:
    _kept.append((b"x" * PLANTED, os.open(os.devnull, os.O_RDONLY)))
    return await _body(self, request, shape, loaded)


if __name__ == "__main__":
    Preparing.body = _leaking_body
    sys.argv[0] = "worker"
    run()
