"""The llama-server inside the xllamacpp wheel; run with the Python that has that wheel.

    xllamacpp_server.py MODEL PORT CELLS SLOTS THREADS

Serves until its stdin ends. Standard library and xllamacpp only.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def main() -> None:
    """Start the server with its own defaults but for what the arguments say."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    model, *numbers = sys.argv[1:]
    port, cells, slots, threads = map(int, numbers)
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.port = port
    params.n_ctx = cells
    params.n_parallel = slots
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main()
