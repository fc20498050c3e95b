"""CPUs and memory: what this process may use of the machine, and what it uses."""

from __future__ import annotations

import math
import os
import platform
import resource
import sys
from pathlib import Path

import msgspec

_CGROUP = Path("/sys/fs/cgroup")
# A cgroup v1 without a limit reports a huge number instead of "max".
_NO_LIMIT = 2**60
_PAGE = os.sysconf("SC_PAGE_SIZE")


class DeviceMemory(msgspec.Struct, frozen=True):
    """Bytes that a new allocation can get on a GPU.

    unified  the GPU has no memory of its own and uses the host's
    """

    name: str
    available: int
    unified: bool = False


class PackedEncoding(msgspec.Struct, frozen=True):
    """An encoding whose matrices the CPU keeps in another order than the file.

    name    as ggml has it: Q4_K
    growth  bytes in that order for each byte of the file
    rows    the order asks for a multiple of so many rows
    """

    name: str
    growth: float
    rows: int


class Memory(msgspec.Struct, frozen=True):
    """Memory in bytes.

    total      of the machine, or the cgroup's limit where that is lower
    available  what a new allocation can get
    devices    GPUs that a model may be put on
    packed     how the CPU keeps weights; `memory()` leaves it out, and the devices
    """

    total: int
    available: int
    devices: tuple[DeviceMemory, ...] = ()
    packed: tuple[PackedEncoding, ...] = ()


def usable_cpus() -> int:
    """CPUs in the affinity mask, at most the cgroup's quota, at least 1.

    With more compute threads than CPUs in the mask llama.cpp can hang, so the number of CPUs of
    the machine must not be used.
    """
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota = _cpu_quota()
    return max(1, count if quota is None else min(count, math.floor(quota)))


def _cpu_quota() -> float | None:
    """CPUs whose time the cgroups grant: 1.5 is one and a half. None: there is no limit."""
    found: list[float] = []
    for folder in _cgroups(""):
        if text := _read(folder / "cpu.max"):
            quota, period = text.split()
            if quota != "max":
                found.append(int(quota) / int(period))
    for folder in _cgroups("cpu"):
        quota_us, period_us = (
            _read(folder / "cpu.cfs_quota_us"),
            _read(folder / "cpu.cfs_period_us"),
        )
        if quota_us and period_us and int(quota_us) > 0:
            found.append(int(quota_us) / int(period_us))
    return min(found, default=None)


def cpu() -> tuple[str, str]:
    """(name, features) of the first CPU, as the system says them; features "" where it does not."""
    first = (_read(Path("/proc/cpuinfo")) or "").partition("\n\n")[0]
    pairs = [line.partition(":") for line in first.splitlines()]
    fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
    name = fields.get("model name") or fields.get("cpu part") or platform.processor()
    return name or platform.machine(), fields.get("flags") or fields.get("features", "")


def memory() -> Memory:
    """The machine's memory as this process sees it."""
    total, available = _physical_memory()
    for limit, used in (*_cgroup_memory(), *_address_space()):
        total = min(total, limit)
        available = min(available, max(0, limit - used))
    return Memory(total=total, available=available)


def _address_space() -> list[tuple[int, int]]:
    """(limit, used) of this process's address space where `ulimit -v` bounds it."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    used = _read(Path("/proc/self/statm")) or "0"
    pages = int(used.split()[0])
    return [] if limit == resource.RLIM_INFINITY else [(limit, pages * _PAGE)]


def _physical_memory() -> tuple[int, int]:
    text = _read(Path("/proc/meminfo"))
    if text:
        fields = dict(line.split(":", 1) for line in text.splitlines())
        total = int(fields["MemTotal"].split()[0]) * 1024
        return total, int(fields.get("MemAvailable", fields["MemFree"]).split()[0]) * 1024
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE
    # sysconf on macOS does not tell what is available. A process gets half before macOS begins to
    # compress memory.
    return total, total // 2


def _cgroup_memory() -> list[tuple[int, int]]:
    """(limit, used) of each cgroup level that has a limit; file cache that the kernel can take
    back does not count as used."""
    found: list[tuple[int, int]] = []
    for controller, limit_name, used_name, cache_name in (
        ("", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        for folder in _cgroups(controller):
            limit = _read(folder / limit_name)
            if limit and limit != "max" and int(limit) < _NO_LIMIT:
                used = int(_read(folder / used_name) or 0)
                found.append((int(limit), max(0, used - _statistic(folder, cache_name))))
    return found


def _statistic(folder: Path, wanted: str) -> int:
    for line in (_read(folder / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == wanted:
            return int(value)
    return 0


def _cgroups(controller: str) -> list[Path]:
    """The folders of this process's cgroup and of all above it.

    controller: a controller of version 1 ("memory"); "" for version 2

    In a container the path is often the host's and does not exist here. Then the top folder is
    this process's own cgroup.
    """
    for line in (_read(Path("/proc/self/cgroup")) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            top = _CGROUP / controllers if controllers else _CGROUP
            if not top.is_dir():
                top = _CGROUP / controller
            own = top / path.strip().lstrip("/")
            folders = [own, *own.parents] if own.is_dir() else [top]
            return [folder for folder in folders if folder.is_relative_to(top)]
    return []


def resident_bytes() -> int:
    """Resident memory of this process now. macOS only tells the peak, so there it is the peak."""
    text = _read(Path("/proc/self/statm"))
    if text:
        return int(text.split()[1]) * _PAGE
    return peak_resident_bytes()


def proportional_bytes() -> int | None:
    """Resident memory; a page shared by n processes counts as 1/n of it. None if unknown."""
    for line in (_read(Path("/proc/self/smaps_rollup")) or "").splitlines():
        name, _, value = line.partition(":")
        if name == "Pss":
            return int(value.split()[0]) * 1024
    return None


def peak_resident_bytes() -> int:
    """The most memory that was resident in this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="surrogateescape").strip()  # names in it need not be text
    except OSError:
        return None


def human_bytes(count: int) -> str:
    """1610612736 -> '1.5 GiB'."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, 4)
    return f"{count / 1024**power:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"
