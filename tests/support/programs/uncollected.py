"""A worker without the cycle collector, which at SIGUSR2 tells what only that would have removed.

`python -m tests.support.programs.uncollected serve ...` starts one; UNCOLLECTED names a file that
then gets a JSON object: {type: how many of it}. The first signal tells of the start.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from worker.__main__ import run  # first, as a worker does: it sees to signals and to threads

# isort: split
VARIABLE = "UNCOLLECTED"


def _tell(*_: object) -> None:
    gc.collect()
    found = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
    gc.garbage.clear()
    gc.set_debug(0)
    gc.collect()  # what was told of goes
    gc.set_debug(gc.DEBUG_SAVEALL)
    path = Path(os.environ[VARIABLE])
    path.with_suffix(".new").write_text(json.dumps(found))
    path.with_suffix(".new").replace(path)


if __name__ == "__main__":
    sys.argv[0] = "worker"
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    signal.signal(signal.SIGUSR2, _tell)
    run()
