"""Arguments of `worker calibrate`."""

from __future__ import annotations

import argparse

from worker.cli.options import add_options

DESCRIPTION = (
    "Times flash and standard attention on this CPU, in a layer with the heads of a "
    "model, and caches the result: workers use it at their next start. Without a cached "
    "result a worker does the same before it is ready."
)
EXAMPLE = """Example:
  worker calibrate tinyllama.Q4_K_M.gguf
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="GGUF file or model's name (default: the embedded demo model)",
    )
    add_options(parser, "catalog", "cache_type_k", "cache_type_v")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
