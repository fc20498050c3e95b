"""A server of the comparison's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from worker.bench.measure.server import model_server
from worker.settings import Settings


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_server_appends_to_its_log(tiny: Path) -> None:
    """Reading the log from its beginning must not move the place where the server writes."""
    with model_server(tiny, Settings(ctx_size=512, parallel=1, threads=1)) as address:
        lines = Path(f"/proc/{address.pid}/fdinfo/2").read_text().splitlines()
    flags = next(line.split()[1] for line in lines if line.startswith("flags:"))
    assert int(flags, 8) & os.O_APPEND
