"""The memory plan against what llama.cpp reports and what is resident afterwards.

`python -m benchmarks.memory_plan` writes hollow models (`models.py`) into a temporary folder and
loads each in a process of its own. A row gives plan and llama.cpp's report in MiB, the error of
weights + KV + compute, and the whole plan beside the resident memory after one full batch. The
last line is JSON. Exits with 1 when an error is above 5 %.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.models import write_model
from benchmarks.shapes import SHAPES
from worker import log, machine
from worker.lifecycle.buffers import asking
from worker.lifecycle.devices import Devices
from worker.lifecycle.prepared import memory_with
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions
from worker.memory.plan import estimate
from worker.model.config import load_config
from worker.settings import Settings

MiB = 2**20
TOLERANCE = 0.05
# shape, quantisation, cells, slots, type of K and V, mmap
CASES = (
    ("demo-5m", "F16", 2048, 4, "f16", False),
    ("demo-5m", "F16", 8192, 16, "f16", False),
    ("tinyllama-1.1b", "Q4_K_M", 2048, 1, "f16", False),
    ("tinyllama-1.1b", "Q4_K_M", 8192, 4, "f16", True),
    ("tinyllama-1.1b", "Q8_0", 2048, 4, "f16", False),
    ("llama-1b", "Q4_K_M", 2048, 1, "f16", False),
    ("llama-1b", "Q4_K_M", 8192, 4, "f16", False),
    ("llama-1b", "Q4_K_M", 8192, 16, "f16", False),
    ("llama-1b", "Q4_K_M", 8192, 4, "f16", True),
    ("llama-1b", "Q4_K_M", 8192, 4, "q8_0", False),
    ("qwen2-0.5b", "Q4_0", 8192, 4, "f16", False),
    ("qwen2-0.5b", "Q4_0", 8192, 16, "f16", True),
    ("qwen3-0.6b", "Q6_K", 2048, 16, "f16", False),
    ("qwen3-0.6b", "Q5_K_M", 8192, 4, "q8_0", True),
    ("moe-small", "Q4_K_M", 2048, 4, "f16", False),
    ("moe-small", "Q4_K_M", 8192, 16, "f16", True),
    ("gemma3-1b", "Q4_K_M", 8192, 4, "f16", False),
    ("gemma3-1b", "BF16", 2048, 1, "f16", False),
)


class LoadedBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes: what llama.cpp reports, and what is resident before and after."""

    weights: int
    kv: int
    compute: int
    resident_before: int
    resident_after: int


def settings_of(case: tuple[str, str, int, int, str, bool]) -> Settings:
    """The settings of a case."""
    _, _, cells, slots, cache, mmap = case
    return Settings(
        ctx_size=cells, parallel=slots, cache_type_k=cache, cache_type_v=cache, mmap=mmap
    )


def measure(path: Path, settings: Settings) -> LoadedBytes:
    """Load, compute one full batch with as many outputs as a step may have, look."""
    log.configure("console")
    before = machine.resident_bytes()
    options = ContextOptions(
        num_cells=settings.ctx_size or 0,
        num_slots=settings.slots,
        unified=True,  # the layout that needs the most
        threads=machine.usable_cpus(),
        threads_batch=machine.usable_cpus(),
        cache_type_k=settings.cache_type_k,
        cache_type_v=settings.cache_type_v,
        flash_attn=settings.flash_attn,
    )
    with LlamaBackend.open(
        path, LoadOptions(n_gpu_layers=0, mmap=bool(settings.mmap)), options
    ) as backend:
        backend.batch.clear()
        for position in range(settings.batch_size):
            backend.batch.add_one(5, position, 0)
        backend.batch.outputs[: settings.batch_size] = 0
        backend.batch.outputs[: backend.batch.max_outputs] = 1
        backend.decode()
        residency = backend.context.residency
        return LoadedBytes(
            weights=sum(size for _, size in backend.weights.residency.buffers),
            kv=sum(size for _, size in residency.kv_buffers),
            compute=sum(size for _, size in residency.compute_buffers),
            resident_before=before,
            resident_after=machine.resident_bytes(),
        )


def main() -> int:
    """Run all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2, metavar=("FILE", "SETTINGS"), help=argparse.SUPPRESS)
    parser.add_argument("shapes", nargs="*", help="only these shapes")
    given = parser.parse_args()
    if given.one:
        settings = msgspec.json.decode(given.one[1], type=Settings)
        print(msgspec.json.encode(measure(Path(given.one[0]), settings)).decode())
        return 0
    table = Table("model", "cells", "np", "KV", "mmap", "weights", "KV", "compute", "error",
                  "plan", "resident", box=None, title="MiB, plan / llama.cpp")  # fmt: skip
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            shape, quant, cells, slots, cache, mmap = case
            if given.shapes and shape not in given.shapes:
                continue
            path = Path(folder) / f"{shape}-{quant}.gguf"
            if not path.exists():
                write_model(path, SHAPES[shape], quant, hollow=True)
            settings = settings_of(case)
            config = load_config(path)
            with asking(config) as ask:
                plan = estimate(config, settings, memory_with(Devices()), ask=ask)
            command = [sys.executable, "-m", "benchmarks.memory_plan", "--one", str(path)]
            output = subprocess.run(
                [*command, msgspec.json.encode(settings)], check=True, stdout=subprocess.PIPE
            ).stdout
            got = msgspec.json.decode(output.splitlines()[-1], type=LoadedBytes)
            planned = plan.weights_bytes + plan.kv_bytes + plan.compute_bytes
            error = planned / (got.weights + got.kv + got.compute) - 1
            table.add_row(
                f"{shape} {quant}", str(cells), str(slots), cache, "yes" if mmap else "no",
                _pair(plan.weights_bytes, got.weights), _pair(plan.kv_bytes, got.kv),
                _pair(plan.compute_bytes, got.compute), f"{error:+.1%}",
                f"{plan.total_bytes / MiB:.0f}", f"{got.resident_after / MiB:.0f}",
            )  # fmt: skip
            rows.append(
                {"model": shape, "quant": quant, "cells": cells, "slots": slots, "cache": cache,
                 "mmap": mmap, "error": round(error, 4), "plan": msgspec.to_builtins(plan),
                 "measured": msgspec.to_builtins(got)}
            )  # fmt: skip
    Console(width=160).print(table)
    worst = max(abs(float(str(row["error"]))) for row in rows)
    print(json.dumps({"benchmark": "memory_plan", "worst_error": worst, "rows": rows}))
    return int(worst > TOLERANCE)


def _pair(plan: int, got: int) -> str:
    return f"{plan / MiB:.1f} / {got / MiB:.1f}"


if __name__ == "__main__":
    sys.exit(main())
