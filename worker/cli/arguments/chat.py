"""Arguments of `worker chat`."""

from __future__ import annotations

import argparse

from worker.cli.arguments import serve
from worker.values import nonempty

DESCRIPTION = "Chat with a model in the terminal, or with a running worker."
EXAMPLE = """Examples:
  worker chat my.gguf
  worker chat --url http://gpu7:8080

Type /help in the chat for its commands. All options of `worker serve` work here too.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_own(parser)
    serve.add_arguments(parser)
    parser.usage = "%(prog)s [MODEL] [--system TEXT] [options]"


def add_own(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Chat")
    group.add_argument("--system", type=nonempty, metavar="TEXT", help="system prompt (none)")
    group.add_argument(
        "--url", metavar="URL", help="chat with the worker at this address instead of starting one"
    )
