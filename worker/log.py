"""structlog, set up once: prose to stderr, as console lines or as JSON."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Literal, TextIO, cast

import structlog

LogFormat = Literal["console", "json"]


class _Stderr:
    """Standard error that may go away: who reads it can die before we do, and no log line is
    worth failing for."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


def configure(fmt: LogFormat, *, verbose: bool = False, quiet: bool = False) -> None:
    """Send every log line to stderr in `fmt`.

    verbose adds llama.cpp's own information, quiet leaves errors only.
    """
    level = logging.DEBUG if verbose else logging.ERROR if quiet else logging.INFO
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if fmt == "json":
        tail: list[structlog.typing.Processor] = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    else:
        # Plain tracebacks: the pretty ones print local variables, prompts and keys among them.
        tail = [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    structlog.configure(
        processors=[*shared, *tail],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Stderr())),
        cache_logger_on_first_use=False,
    )


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    """The logger of one part of the worker; `name` appears as `part` on each line."""
    return structlog.get_logger(part=name)
