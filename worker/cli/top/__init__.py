"""worker top: what a running worker does, live."""

from worker.cli.top.command import add_parser

__all__ = ["add_parser"]
