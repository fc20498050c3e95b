"""Structured lines on standard error: text for a terminal, JSON where Ray collects them."""

from __future__ import annotations

import sys
from typing import Any

import structlog


def configure(fmt: str) -> None:
    """console or json."""
    tail: Any = (
        structlog.processors.JSONRenderer()
        if fmt == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            tail,
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def get(part: str) -> Any:
    return structlog.get_logger(part=part)
