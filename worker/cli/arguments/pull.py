"""Arguments of `worker pull`."""

from __future__ import annotations

import argparse

from worker.cli.options import add_options

DESCRIPTION = (
    "Download GGUF files into the Hub's cache (HF_HOME), checksum and header "
    "checked; what was interrupted goes on where it stopped. A model is NAME[:QUANT] of the "
    "catalogue, ORGANIZATION/REPOSITORY[@REVISION][:QUANT], or "
    "hf:ORGANIZATION/REPOSITORY[@REVISION]::file=FILE.gguf. Without QUANT it is the largest "
    "encoding up to Q8_0 that fits here with some context: 1.2 times the file and 512 MiB "
    "within the available memory of the host; that of GPUs is not counted. Files above 50 GB "
    "are left to the Hub's own `hf download`. The projector beside it comes too, but with "
    "--no-mmproj. HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE count."
)
EXAMPLE = """Example:
  worker pull tinyllama:Q4_K_M && worker serve tinyllama:Q4_K_M
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", metavar="MODEL", help="what to bring")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="show the catalogue and what is here")
    what.add_argument(
        "--check",
        action="store_true",
        help="ask the Hub whether it has the files that the catalogue names (of all models, or of "
        "those given)",
    )
    add_options(parser, "catalog", "mmproj_auto")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
