"""What this machine is, what a process takes of it, and what a model will need."""

from __future__ import annotations

import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np

from worker import __version__, machine
from worker.bench.figures import figure
from worker.bench.sections import Bandwidth, Buffers, Machine, MemoryNeeds, ProcessMemory, Versions
from worker.llama import library
from worker.llama.backend import LlamaBackend
from worker.memory.contexts import AskBuffers
from worker.memory.plan import estimate
from worker.model.config import ModelConfig
from worker.settings import Settings

# Of each thread: several times the largest caches. Together at most a quarter of what is free.
_BYTES = 256 << 20
_ROUNDS = 5


def this_machine(threads: int) -> Machine:
    """The machine and its programs, with the speed of its memory measured by `threads` threads."""
    build = library.build()
    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=machine.cpu()[0],
        cpus=machine.usable_cpus(),
        memory_bytes=machine.memory().total,
        bandwidth=measure_bandwidth(threads),
        devices=tuple(device.description for device in library.devices() if device.kind != "cpu"),
        versions=Versions(
            worker=__version__,
            python=platform.python_version(),
            bindings=build.bindings,
            backends=build.backends,
            system_info=build.system_info,
        ),
    )


def measure_bandwidth(threads: int) -> Bandwidth:
    """OR together arrays that no cache holds. The reduction releases the GIL."""
    each = min(_BYTES, machine.memory().available // (4 * threads)) & ~7
    arrays = [np.ones(each // 8, np.int64) for _ in range(threads)]
    total = each * threads
    speeds: list[float] = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_ROUNDS + 1):
            started = time.perf_counter()
            list(pool.map(np.bitwise_or.reduce, arrays))
            speeds.append(total / (time.perf_counter() - started))
    return Bandwidth(
        threads=threads, nbytes=total, per_s=figure(speeds[1:]), cache_bytes=_last_level_cache()
    )


def _last_level_cache() -> int:
    """Bytes of the largest cache of CPU 0; 0 where the system does not tell."""
    sizes = [0]
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text().strip()
        if text.endswith("K") and text[:-1].isdigit():
            sizes.append(int(text[:-1]) << 10)
    return max(sizes)


def process_memory(pid: int | None = None) -> ProcessMemory | None:
    """The kernel's figures of a process, of this one without `pid`; None without /proc."""
    folder = Path("/proc") / str(pid or os.getpid())
    try:
        status = _kilobytes(folder / "status")
        smaps = _kilobytes(folder / "smaps_rollup")
    except OSError:
        return None
    return ProcessMemory(peak_rss=status["VmHWM"], rss=status["VmRSS"], pss=smaps["Pss"])


def _kilobytes(file: Path) -> dict[str, int]:
    """The lines `Name: N kB` of a file, in bytes."""
    rows = (line.split() for line in file.read_text().splitlines())
    return {
        row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3 and row[2] == "kB"
    }


def buffers_of(backend: LlamaBackend) -> Buffers:
    """What llama.cpp reported when it allocated."""
    weights = dict(backend.weights.residency.buffers)
    kv = dict(backend.context.residency.kv_buffers)
    compute = dict(backend.context.residency.compute_buffers)
    return Buffers(
        weights=weights,
        kv=kv,
        compute=compute,
        device_bytes=sum(
            nbytes
            for part in (weights, kv, compute)
            for name, nbytes in part.items()
            if library.device_of(name) != "CPU"
        ),
    )


def needs_of(
    config: ModelConfig, settings: Settings, memory: machine.Memory, ask: AskBuffers
) -> MemoryNeeds:
    """The plan for these settings, and how long one sequence alone may become."""
    plan = estimate(config, settings, memory, ask=ask)
    alone = msgspec.structs.replace(settings, parallel=1, ctx_size=None)
    longest = estimate(config, alone, memory, ask=ask).max_cells
    return MemoryNeeds(
        context=plan.num_cells,
        streams=settings.slots,
        planned_bytes=plan.total_bytes,
        kv_bytes_per_token=plan.kv_bytes_per_token,
        max_context=min(longest, config.context) if config.context else longest,
        trained_context=config.context,
    )


def read_per_token(config: ModelConfig, tensors: list[tuple[str, int]]) -> int:
    """Bytes of weights that decoding one token reads, from (name, bytes) of each tensor.

    Tables of which a token takes one row are left out: per-layer embeddings, and the embedding
    where it is not the output matrix too. Of the experts only those count that a token passes.
    """
    names = {name for name, _ in tensors}
    tied = "output.weight" not in names
    total = 0.0
    for name, nbytes in tensors:
        if name.endswith("token_embd.weight") and (name.startswith("per_layer") or not tied):
            continue
        if "_exps." in name and config.experts:
            total += nbytes * config.experts.max_used / config.experts.count
        else:
            total += nbytes
    return int(total)
