"""Arguments of `worker check`."""

from __future__ import annotations

import argparse

from worker.cli.options import add_options

DESCRIPTION = (
    "Checks model files as the service does before it loads one, and reports what is "
    "wrong and where. Folders are searched for *.gguf; the files of a split model are one "
    "model. Importance matrices, vocabularies, encoders and draft models cannot be served: "
    "they are bad if you name them, and only listed in a folder. With --lora, --mmproj or "
    "--draft-model a model is bad if one of these does not fit. Exits with 1 if a file is bad."
)
EXAMPLE = """Examples:
  worker check ~/models
  worker check --deep --json ~/models | jq -r 'select(.ok | not) | .file'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="GGUF file, folder or model's name"
    )
    parser.add_argument(
        "--deep",
        action="store_true",
        help="read the weights too: NaN, infinities, scales that no model can have learnt, and "
        "the checksums that the catalogue or the Hub's cache knows",
    )
    add_options(parser, "catalog", "lora", "mmproj", "draft_model")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each model")
