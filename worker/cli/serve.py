"""worker serve: run the service."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from typing import Any

from worker import log
from worker.cli.options import add_options, environment_help, settings_from


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "serve",
        help="serve a model to OpenAI clients",
        description="Serve a model over HTTP: /v1/completions, /v1/models, /health.",
        epilog=f"Example: worker serve -m tinyllama.Q4_K_M.gguf --port 8080. {environment_help()}",
        allow_abbrev=False,
    )
    add_options(parser)
    parser.set_defaults(run=run)


def _leave(_number: int, _frame: object) -> None:
    os._exit(0)


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop; failures are raised."""
    # Until the service takes over: being told to stop while still starting is no failure.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _leave)
    settings = settings_from(arguments)
    log.configure(settings.log_format, verbose=settings.verbose)  # type: ignore[arg-type]
    from worker.cli.model import model_path
    from worker.service.server import serve

    asyncio.run(serve(settings, model_path(settings)))
    return 0
