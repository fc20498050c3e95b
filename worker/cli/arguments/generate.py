"""Arguments of `worker generate`."""

from __future__ import annotations

import argparse

from worker.cli.options import add_options, reader
from worker.values import integer

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed")

DESCRIPTION = (
    "Load a model, answer the prompt and print the text as it comes. If the model has a chat "
    "template, the prompt is a user's message; with --raw it is a text to continue."
)
EXAMPLE = """Example:
  worker generate --model my.gguf "Name three colors." --max-tokens 100
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s PROMPT [--model FILE] [--max-tokens N] [options]"
    parser.add_argument(
        "prompt", metavar="PROMPT", help="the prompt; - reads it from standard input"
    )
    parser.add_argument(
        "--max-tokens", "-n", type=reader(integer(1, 2**31 - 1)), default=200, metavar="N",
        help="most tokens to generate (200)",
    )  # fmt: skip
    parser.add_argument(
        "--raw", action="store_true", help="continue the prompt without the chat template"
    )
    own = (
        "model catalog ctx_size threads threads_batch n_gpu_layers backend device rpc tensor_split "
        "cache_type_k cache_type_v flash_attn mmap mmproj mmproj_auto mmproj_offload log_level"
    )
    add_options(parser, *own.split(), *_SAMPLING)
    parser.add_argument(
        "--image",
        action="append",
        default=[],
        metavar="FILE",
        help="image that the prompt is about; repeat for several",
    )
