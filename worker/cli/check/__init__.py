"""worker check: whether model files are good."""

from worker.cli.check.command import add_parser

__all__ = ["add_parser"]
