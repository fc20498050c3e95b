"""Arguments of `worker quantize`."""

from __future__ import annotations

import argparse

from worker.cli.options import add_options, reader
from worker.settings import CACHE_TYPES
from worker.values import cells, duration, number, size

DESCRIPTION = (
    "Quantizes a GGUF file with llama.cpp. The result gets its name once it is "
    "complete; an interruption leaves no file with that name. With --fit or --bits it finds the "
    "mix of encodings that harms least at that size, measures it on text that was not used, and "
    "keeps it if no preset of that size is better."
)
EXAMPLE = """Examples:
  worker quantize model-f16.gguf model-Q4_K_M.gguf Q4_K_M
  worker quantize model-f16.gguf model-fit.gguf --bits 4.3 --text mine.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s SRC DST [TYPE | --fit SIZE | --bits B] [options]"
    parser.add_argument(
        "source", metavar="SRC", help="GGUF file or model's name, best in F16, BF16 or F32"
    )
    parser.add_argument("target", metavar="DST", help="file to write")
    parser.add_argument(
        "type", metavar="TYPE", nargs="?", help="Q4_K_M, Q8_0, IQ4_XS, ...; any of llama.cpp's"
    )
    parser.add_argument(
        "--imatrix", metavar="FILE", help="importance matrix, made with `worker imatrix`"
    )
    switches = (
        ("--allow-requantize", "also accept a source that is already quantized"),
        ("--leave-output-tensor", "keep output.weight as it is"),
        ("--pure", "one encoding for all matrices instead of llama.cpp's mix"),
        ("--dry-run", "only say what would be written"),
        ("--force", "replace DST where it exists"),
        ("--json", "machine-readable output"),
    )
    for flag, text in switches:
        parser.add_argument(flag, action="store_true", help=text)
    group = parser.add_argument_group("The best mix for a size")
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--fit",
        metavar="SIZE",
        type=reader(size),
        help="find the best mix of this size, such as 6GiB; with --ctx-size the "
        "memory of a worker with that context",
    )
    which.add_argument(
        "--bits",
        metavar="B",
        type=reader(number(1, 16)),
        help="the same for a number of bits per weight, such as 4.3",
    )
    which.add_argument(
        "--recipe", metavar="FILE.json", help="apply the recipe that --fit wrote beside its file"
    )
    group.add_argument(
        "--text",
        metavar="FILE",
        nargs="+",
        action="extend",
        help="texts in UTF-8, such as the model will read: two thirds to choose by, "
        "the rest to measure",
    )
    group.add_argument(
        "--time",
        metavar="TIME",
        type=reader(duration(10, 7 * 86_400)),
        default=600.0,
        help="what --fit may take, such as 10m (10m)",
    )
    group.add_argument(
        "--cells",
        metavar="TYPE",
        type=reader(cells(*CACHE_TYPES)),
        default=("f16", "f16"),
        help="cells of that context: q8_0, or k:q8_0/v:q4_0 (f16)",
    )
    add_options(parser, "catalog", "threads", "ctx_size", "parallel")
