"""worker completion: a script that completes this command line in a shell."""

from __future__ import annotations

import argparse
import sys

import shtab

from worker.cli.main import COMMANDS, parser


def run(arguments: argparse.Namespace) -> int:
    sys.stdout.write(shtab.complete(parser(*COMMANDS), arguments.shell))
    return 0
