"""worker plan: what a model needs, for people and for programs."""

from worker.cli.plan.command import add_parser

__all__ = ["add_parser"]
