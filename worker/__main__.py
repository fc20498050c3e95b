"""python -m worker."""

from worker.cli.main import run

run()
