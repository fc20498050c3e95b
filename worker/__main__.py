"""python -m worker, and the commands: where a process begins."""

from __future__ import annotations

import os
import sys

from worker.lifecycle.leave import leave_when_told

__all__ = ["run", "run_cpu", "run_cuda", "run_metal", "run_vulkan"]

# Before the imports that take their time: the first process of a container would not notice a
# signal at all, and others would print where it met them.
if (sys.argv[1:2] or ["serve"])[0].startswith(("serve", "-")):
    leave_when_told()

# numpy's library for matrices would start a thread for each CPU, which spins: 60 ms of CPU time on
# two CPUs. Nobody here multiplies any.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from worker.cli.main import run, run_cpu, run_cuda, run_metal, run_vulkan

if __name__ == "__main__":
    run()
