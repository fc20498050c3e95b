"""worker completion: a script that completes this command line in a shell."""

from __future__ import annotations

import argparse
import sys

import shtab

from worker.cli.main import COMMANDS, parser

DESCRIPTION = "Print a script with which your shell completes commands and options."
EXAMPLE = (
    "bash: worker completion bash > ~/.local/share/bash-completion/completions/worker; "
    'zsh: worker completion zsh > "${fpath[1]}/_worker"; '
    "fish: worker completion fish > ~/.config/fish/completions/worker.fish"
)
_SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help=", ".join(_SHELLS))


def run(arguments: argparse.Namespace) -> int:
    sys.stdout.write(shtab.complete(parser(*COMMANDS), arguments.shell))
    return 0
