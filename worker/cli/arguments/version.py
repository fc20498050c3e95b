"""Arguments of `worker version`."""

from __future__ import annotations

import argparse

DESCRIPTION = (
    "Shows versions, the backends of the installed llama.cpp and their devices, the CPU "
    "features in use, the last self-test, and which attention is faster here, if measured."
)
EXAMPLE = """Example:
  worker version --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="machine-readable output")
