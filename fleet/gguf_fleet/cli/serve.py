"""worker fleet serve: run a fleet until told to stop."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

from gguf_fleet import log
from gguf_fleet.cluster import cluster
from gguf_fleet.file import read_fleet

_LOOPBACK = "127.0.0.1"


def run(arguments: argparse.Namespace) -> int:
    """Serve; failures are raised."""
    log.configure("console")
    fleet = read_fleet(Path(arguments.file) if arguments.file else None)
    told = threading.Event()

    def stop(_number: int, _frame: object) -> None:
        told.set()

    with cluster(arguments.address, with_gpus=fleet.wants_gpus):
        # After Ray, which has handlers of its own.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        from gguf_fleet.running import open_fleet

        host = _LOOPBACK if arguments.address is None else None
        with open_fleet(fleet, told, host) as url:
            log.get("fleet").info("ready", url=url, models=" ".join(fleet.models))
            told.wait()
            log.get("fleet").info("leaving")
    return 0
