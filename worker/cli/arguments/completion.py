"""Arguments of `worker completion`."""

from __future__ import annotations

import argparse

DESCRIPTION = "Print a script with which your shell completes commands and options."
EXAMPLE = """bash:
  worker completion bash > ~/.local/share/bash-completion/completions/worker

zsh:
  worker completion zsh > "${fpath[1]}/_worker"

fish:
  worker completion fish > ~/.config/fish/completions/worker.fish
"""


_SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help=", ".join(_SHELLS))
