"""Arguments of `worker embed`."""

from __future__ import annotations

import argparse

from worker.cli.options import add_options, reader
from worker.values import integer

DESCRIPTION = (
    "Read a text line by line and write the vector of each line as soon as it is "
    "there: numbers with spaces between, in the order of the lines, each vector of length 1."
)
EXAMPLE = """Example:
  worker embed notes.txt --model all-MiniLM-L6-v2.gguf --json > notes.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [FILE] [--model FILE] [--json | --npy] [options]"
    parser.add_argument(
        "file", nargs="?", metavar="FILE", default="-", help="the text (standard input)"
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--json", action="store_true", help="a JSON object for each line")
    ways.add_argument(
        "--npy", action="store_true", help="one array of float32 for numpy, once all is read"
    )
    parser.add_argument(
        "--skip",
        type=reader(integer(0, 2**63 - 1)),
        default=0,
        metavar="N",
        help="lines to leave out: those that an earlier run has written (0)",
    )
    parser.add_argument(
        "--truncate", action="store_true", help="cut lines that are too long instead of ending"
    )
    own = (
        "model catalog pooling ctx_size batch_size threads threads_batch n_gpu_layers backend "
        "device rpc tensor_split flash_attn mmap log_level"
    )
    add_options(parser, *own.split())
