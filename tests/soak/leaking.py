"""A worker that leaks: what proves that a leak is seen.

`python -m tests.soak.leaking serve ...`: of each body that it reads it keeps PLANTED bytes and a
descriptor.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from worker.cli.main import run
from worker.service.preparing import Preparing

PLANTED = 16_000_000
_kept: list[tuple[bytes, int]] = []
_body = Preparing.body


async def _leaking_body(self: Preparing, *arguments: Any) -> Any:
    _kept.append((b"x" * PLANTED, os.open(os.devnull, os.O_RDONLY)))
    return await _body(self, *arguments)


if __name__ == "__main__":
    Preparing.body = _leaking_body
    sys.argv[0] = "worker"
    run()
