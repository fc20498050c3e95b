"""worker fleet serve: run a fleet until told to stop."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

from worker import log
from worker.fleet.cluster import cluster
from worker.fleet.file import read_fleet
from worker.settings import LOOPBACK


def run(arguments: argparse.Namespace) -> int:
    """Serve; failures are raised."""
    fleet = read_fleet(Path(arguments.file) if arguments.file else None)
    told = threading.Event()

    def stop(_number: int, _frame: object) -> None:
        told.set()

    with cluster(arguments.address, with_gpus=fleet.wants_gpus):
        # After Ray, which has handlers of its own.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        from worker.fleet.running import running

        host = LOOPBACK[0] if arguments.address is None else None
        with running(fleet, told, host) as url:
            log.get("fleet").info("ready", url=url, models=" ".join(fleet.models))
            told.wait()
            log.get("fleet").info("leaving")
    return 0
