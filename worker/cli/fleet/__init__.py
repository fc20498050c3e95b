"""worker fleet: plan, serve and watch many workers behind one endpoint."""

from worker.cli.fleet.command import add_parser

__all__ = ["add_parser"]
