"""Decode until the neighbours are noticed: `python -m tests.llama.noticing MODEL`.

In a process of its own: libgomp counts every team that was ever formed in a process, and where
there are many its threads do not spin long to begin with.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions

options = ContextOptions(num_cells=512, num_slots=2, threads=2, threads_batch=2)
with LlamaBackend(Path(sys.argv[1]), LoadOptions(n_gpu_layers=0), options) as backend:
    backend.warm_up()
    while not backend.spin.is_short:
        backend.batch.clear()
        backend.batch.add(np.full(256, 5), 0, 0)
        backend.batch.outputs[255] = 1
        backend.decode()
        backend.context.clear()
