"""A worker that is older than an architecture of its llama.cpp: `python -m
tests.support.programs.newer serve ...` knows nothing of the one in $UNKNOWN.
"""

from __future__ import annotations

import os
import sys

from worker.model import architectures

NAME = os.environ["UNKNOWN"]

if __name__ == "__main__":
    for key, names in list(vars(architectures).items()):
        if isinstance(names, frozenset):
            setattr(architectures, key, names - {NAME})
    architectures.newer = lambda: frozenset({NAME})
    from worker.cli.main import run

    sys.argv[0] = "worker"
    run()
