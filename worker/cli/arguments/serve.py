"""Arguments of `worker serve`."""

from __future__ import annotations

import argparse

from worker import __version__
from worker.cli.foreign import add_foreign_flags
from worker.cli.options import add_options, environment_help

DESCRIPTION = "Serve a model over HTTP. `worker my.gguf` does the same."
EXAMPLE = (
    "Examples:\n"
    "  worker serve my.gguf --port 8080\n"
    "  worker serve -hf Qwen/Qwen3-4B-GGUF --temp 0.7 -c 16384\n\n"
    f"{environment_help()}"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [MODEL] [--port N] [options]"
    parser.add_argument("named", nargs="?", metavar="MODEL", help="the same as --model MODEL")
    parser.add_argument("--version", action="version", version=f"worker {__version__}")
    add_options(parser)
    parser.add_argument_group(
        "Compatibility",
        "Every llama-server flag is accepted. One that is not listed above is ignored with a "
        "logged reason, or rejected with the option that replaces it.",
    )
    add_foreign_flags(parser)
