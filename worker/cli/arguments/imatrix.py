"""Arguments of `worker imatrix`."""

from __future__ import annotations

import argparse

from worker.cli.options import add_options, reader
from worker.values import integer

DESCRIPTION = (
    "Computes how much each input of a model's matrices matters for your texts: an importance "
    "matrix, with which `worker quantize` loses less. The file is that of llama-imatrix. Ctrl-C "
    "keeps what is there, and the same command continues."
)
EXAMPLE = """Example:
  worker imatrix model-f16.gguf --text mine.txt -o model.imatrix.gguf
"""


_CHUNK = 512


_ALL = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s MODEL --text FILE [FILE ...] -o FILE.gguf [options]"
    add = parser.add_argument
    add("model", metavar="MODEL", help="GGUF file or model's name, best in F16, BF16 or F32")
    add(
        "--text",
        metavar="FILE",
        nargs="+",
        action="extend",
        required=True,
        help="texts in UTF-8, such as the model will read",
    )
    add("-o", "--output", metavar="FILE.gguf", required=True, help="file to write")
    add(
        "--chunk",
        metavar="TOKENS",
        type=reader(integer(32, 1 << 16)),
        default=_CHUNK,
        help=f"tokens that are computed together ({_CHUNK})",
    )
    add(
        "--chunks",
        metavar="N",
        type=reader(integer(1, _ALL)),
        default=_ALL,
        help="chunks at most (the whole text)",
    )
    add("--process-output", action="store_true", help="also for the output matrix")
    add("--force", action="store_true", help="replace a FILE.gguf of other texts or another model")
    add("--json", action="store_true", help="machine-readable output")
    add_options(
        parser, "catalog", "threads", "threads_batch", "n_gpu_layers", "device", "flash_attn"
    )
