"""Arguments of `worker top`."""

from __future__ import annotations

import argparse

from worker.cli.options import add_options

_URL = "http://127.0.0.1:8080"

DESCRIPTION = (
    "Watch a running worker: its requests (how much of a prompt is read, tokens per second, wait), "
    "cells, speeds, memory and log. A worker that dies is shown as gone until it answers again. "
    "q or Ctrl-C quits. If standard output is not a terminal, the view is printed once."
)
EXAMPLE = """Example:
  worker top http://gpu7:8080 --api-key-file ~/.worker-key
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    address = f"the worker's address ({_URL})"
    parser.add_argument("url", nargs="?", default=_URL, metavar="URL", help=address)
    add_options(parser, "api_key", "api_key_file")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="print the view once")
    how.add_argument("--json", action="store_true", help="print what the worker says once, as JSON")
