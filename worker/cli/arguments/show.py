"""Arguments of `worker show`."""

from __future__ import annotations

import argparse

from worker.cli.options import add_options

DESCRIPTION = (
    "The typed config of a GGUF file: shape, attention, tokenizer, encodings, "
    "recommended sampling; or what an adapter or a projector is. The weights are not read."
)
EXAMPLE = """Example:
  worker show tinyllama.Q4_K_M.gguf --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="GGUF file or model's name (default: the embedded demo model)",
    )
    add_options(parser, "catalog")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
