"""What the figures were taken on, and with."""

from __future__ import annotations

import platform
from pathlib import Path

import msgspec

from worker import __version__, machine
from worker.bench.bandwidth import Bandwidth, measure_bandwidth
from worker.llama import library


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the figures were taken on; nothing that names it."""

    system: str
    cpu: str
    cpus: int
    memory_bytes: int
    bandwidth: Bandwidth
    devices: tuple[str, ...]


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """What they were taken with."""

    worker: str
    python: str
    bindings: str
    backends: tuple[str, ...]
    system_info: str


def this_machine(threads: int) -> Machine:
    """The machine, with the speed of its memory measured by `threads` threads."""
    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=_cpu(),
        cpus=machine.usable_cpus(),
        memory_bytes=machine.memory().total,
        bandwidth=measure_bandwidth(threads),
        devices=tuple(device.description for device in library.devices() if device.kind != "cpu"),
    )


def this_build() -> Build:
    """The worker and the library that it runs on."""
    build = library.build()
    return Build(
        worker=__version__,
        python=platform.python_version(),
        bindings=build.bindings,
        backends=build.backends,
        system_info=build.system_info,
    )


def _cpu() -> str:
    """The processor's name, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
