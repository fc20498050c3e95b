"""Bring models of models.toml to this machine: `worker pull` for all the small ones, or by name.

    python scripts/download_models.py --list
    python scripts/download_models.py tinyllama:Q4_K_M llama-2-7b
    python scripts/download_models.py --up-to 2 --quant Q4_K_M    all up to 2 B parameters

Interrupted, it goes on where it stopped when run again.
"""

from __future__ import annotations

import argparse
import sys

from worker.cli.main import main as worker
from worker.model.catalog import load_catalog


def main() -> int:
    """The exit code of `worker pull`."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", metavar="NAME[:QUANT]")
    parser.add_argument("--list", action="store_true", help="show what can be named")
    parser.add_argument("--up-to", type=float, metavar="B",
                        help="also all models with at most B billion parameters")  # fmt: skip
    parser.add_argument("--quant", default="Q4_K_M", help="the encoding for --up-to (Q4_K_M)")
    arguments = parser.parse_args()
    if arguments.list:
        return worker(["pull", "--list"])
    models = list(arguments.models)
    if arguments.up_to is not None:
        models += [
            f"{name}:{arguments.quant}"
            for name, entry in load_catalog().entries.items()
            if entry.parameters <= arguments.up_to * 1e9 and arguments.quant in entry.labels
        ]
    if not models:
        parser.error("name a model, or --list, or --up-to B")
    return worker(["pull", *models])


if __name__ == "__main__":
    sys.exit(main())
