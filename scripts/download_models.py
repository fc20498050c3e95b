"""Download models of models.toml with `worker pull`: by name, or all up to a size.

    python scripts/download_models.py --list
    python scripts/download_models.py tinyllama:Q4_K_M llama-2-7b
    python scripts/download_models.py --up-to 2 --quant Q4_K_M    all up to 2 B parameters

After an interrupt the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace

from worker.cli.main import main as worker
from worker.cli.options import settings_from
from worker.errors import WorkerError
from worker.hub.catalog import load_catalog


def main() -> int:
    """Return the exit code of `worker pull`."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", metavar="NAME[:QUANT]")
    parser.add_argument("--list", action="store_true", help="show what can be named")
    parser.add_argument("--up-to", type=float, metavar="B",
                        help="also all models with at most B billion parameters")  # fmt: skip
    parser.add_argument("--quant", default="Q4_K_M", type=str.upper,
                        help="the encoding for --up-to (Q4_K_M)")  # fmt: skip
    arguments = parser.parse_args()
    if arguments.list:
        return worker(["pull", "--list"])
    models = list(arguments.models)
    if arguments.up_to is not None:
        try:
            models += _up_to(arguments.up_to * 1e9, arguments.quant)
        except WorkerError as error:
            parser.error(str(error))
        if not models:
            parser.error(f"no model has {arguments.quant} and that few parameters")
    if not models:
        parser.error("name a model, or --list, or --up-to B")
    return worker(["pull", *models])


def _up_to(parameters: float, quant: str) -> list[str]:
    """Return the names of such models, from the user's own catalogue too (GGUF_WORKER_MODELS)."""
    entries = load_catalog(settings_from(Namespace()).catalog).entries
    return [
        f"{name}:{quant}"
        for name, entry in entries.items()
        if entry.parameters <= parameters and quant in entry.labels
    ]


if __name__ == "__main__":
    sys.exit(main())
