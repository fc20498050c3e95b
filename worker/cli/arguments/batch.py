"""Arguments of `worker batch`."""

from __future__ import annotations

import argparse

from worker.cli.arguments import serve

DESCRIPTION = (
    "Answer the requests in a file, one JSON object a line as in OpenAI's batches, and append each "
    "answer to another file. The same command goes on where it was interrupted."
)
EXAMPLE = (
    "Examples:\n"
    "  worker batch in.jsonl out.jsonl my.gguf\n"
    "  worker batch in.jsonl out.jsonl --url http://gpu7:8080\n\n"
    "A line of IN:\n"
    '  {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": '
    '{"messages": [{"role": "user", "content": "Hello"}]}}\n\n'
    "All options of `worker serve` work here too."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="IN", help="the requests; - reads standard input")
    parser.add_argument("output", metavar="OUT", help="the answers; - writes standard output")
    add_own(parser)
    serve.add_arguments(parser)
    parser.usage = "%(prog)s IN.jsonl OUT.jsonl [MODEL] [--url URL] [options]"


def add_own(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Batch", "--parallel is the number of requests at once (16).")
    group.add_argument("--json", action="store_true", help="print a summary as JSON at the end")
    group.add_argument(
        "--url", metavar="URL", help="ask the worker at this address instead of starting one"
    )
