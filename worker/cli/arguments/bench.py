"""Arguments of `worker bench`."""

from __future__ import annotations

import argparse
import math

from worker.cli.options import add_options, reader
from worker.settings import CACHE_TYPES
from worker.values import cells_list, duration, number

DESCRIPTION = (
    "Measures size, loading, speed (bare and over HTTP), memory and quality of each quant "
    "level of a model, each in a separate process, and recommends a level for this machine. "
    "For an embedding model it measures the distance to the reference, and texts per second. "
    "A file in F16, BF16 or F32 is quantized; several files of one model are compared as they "
    "are. With --lora one file is measured with and without each adapter. Images are not "
    "measured, and no projector is loaded. After an interruption the same command continues."
)
EXAMPLE = """Examples:
  worker bench model-f16.gguf --quants Q8_0,Q5_K_M,Q4_K_M --out report
  worker bench model-f16.gguf --quants Q4_K_M,fit:4.3 --text mine.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [MODEL ...] [--quants A,B] [--out DIR] [options]"
    add = parser.add_argument
    add("models", nargs="*", metavar="MODEL",
        help="a file, several files of one model, or a name whose encodings have been pulled "
        "(default: the embedded demo model)")  # fmt: skip
    add("--quants", metavar="A,B",
        help="levels to measure (Q8_0 to Q2_K, or all that are there); fit:4.3 is the best mix of "
        "4.3 bits per weight, fit:6GiB of that size, chosen by two thirds of the text")  # fmt: skip
    add("--reference", metavar="QUANT", help="what quality is measured against (the largest)")
    add(
        "--text",
        metavar="FILE",
        help="text to measure quality on, in UTF-8; all of it, if the time allows",
    )
    add(
        "--questions",
        metavar="FILE",
        help='your own multiple-choice questions, a line each: {"question": "2 + 2 is", '
        '"choices": ["4", "5"], "answer": 0}',
    )
    add("--imatrix", metavar="FILE", help="importance matrix to quantize with")
    add("--decisions", nargs="?", const="", dest="asked", metavar="FILE.jsonl",
        help="measure how well each level answers typed questions, ours or those of FILE.jsonl, "
        "and write MODEL.gguf.decisions.json for `worker serve`")  # fmt: skip
    add("--cells", metavar="A,B", type=reader(cells_list(*CACHE_TYPES)),
        help="compare types of KV cells on contexts of 2,048 tokens, such as "
        "f16,q8_0,q4_0,k:q8_0/v:q4_0; the first is what others are measured against")  # fmt: skip
    add("--no-quality", action="store_true", help="speed and memory only")
    add("--time", type=reader(duration(10, 7 * 86_400)), metavar="TIME",
        help="what the run may take, such as 90s, 5m or 1h: if that is too short for everything, "
        "less is measured (5m; 75s with --quick, 1h with --thorough)")  # fmt: skip
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument(
        "--quick",
        action="store_true",
        help="fewer levels, one stream, fewer repetitions and less text",
    )
    effort.add_argument("--thorough", action="store_true", help="more repetitions")
    add("--max-kld", type=reader(number(0, math.inf)), metavar="NATS",
        help="divergence from the reference that a recommended level may have (0.05)")  # fmt: skip
    add("--out", metavar="DIR", help="write report.json, .md, .svg and .html there")
    add("--json", action="store_true", help="the report as JSON on standard output")
    add("--fresh", action="store_true", help="take no timings of an interrupted run")
    add("--cache-gb", type=reader(number(0, 1e9)), metavar="GB",
        help="limit of cached data: quantized files, reference rows (20)")  # fmt: skip
    add("--clean", action="store_true", help="remove what was kept, and do nothing else")
    add("--compare", nargs=2, metavar=("A.json", "B.json"),
        help="show what changed between two reports and whether it is real")  # fmt: skip
    add_options(
        parser,
        "catalog", "parallel", "threads", "threads_batch", "batch_size", "ubatch_size", "backend",
        "n_gpu_layers", "pooling", "device", "tensor_split", "split_mode", "main_gpu",
        "cache_type_k", "cache_type_v", "flash_attn", "mmap", "lora", "decisions_orders",
    )  # fmt: skip
