"""A worker on a machine with a GPU: `python -m tests.support.programs.with_gpu serve ...`.

The GPU is an RPC server at $STAND_IN_GPU; without that variable there is none.
"""

from __future__ import annotations

import os
import sys

from worker.cli.main import run
from worker.llama import rpc

SERVER = "STAND_IN_GPU"

if __name__ == "__main__":
    rpc.connect([os.environ[SERVER]] if SERVER in os.environ else [])
    sys.argv[0] = "worker"
    run()
