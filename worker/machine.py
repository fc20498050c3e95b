"""What this process may use and does use of the machine: CPUs and memory."""

from __future__ import annotations

import math
import os
import resource
import sys
from pathlib import Path

import msgspec

_CGROUP = Path("/sys/fs/cgroup")
# A cgroup v1 without a limit reports a huge number instead of "max".
_NO_LIMIT = 2**60
_PAGE = os.sysconf("SC_PAGE_SIZE")


class DeviceMemory(msgspec.Struct, frozen=True):
    """Bytes that a new allocation can get on a GPU; `unified`: they are the host's own."""

    name: str
    available: int
    unified: bool = False


class Memory(msgspec.Struct, frozen=True):
    """Bytes. `available` is what a new allocation can get, the cgroup's limit included.

    devices  GPUs that a model may be put on; `memory` does not know them
    """

    total: int
    available: int
    devices: tuple[DeviceMemory, ...] = ()


def usable_cpus() -> int:
    """CPUs in the affinity mask, bounded by the cgroup's quota; at least 1.

    More compute threads than CPUs in the mask has hung llama.cpp, so the machine's count is no use.
    """
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota = _cpu_quota()
    return max(1, count if quota is None else min(count, math.floor(quota)))


def _cpu_quota() -> float | None:
    """CPUs' worth of time that the cgroups grant, or None."""
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
    # macOS does not say what is available through sysconf; half is what it grants a process
    # before it begins to compress.
    return total, total // 2


def _cgroup_memory() -> list[tuple[int, int]]:
    """(limit, used without reclaimable file cache) of each cgroup level that has a limit."""
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
    """This process's cgroup and all above it: of version 1's controller, or ("") of version 2.

    Inside a container the path is often the host's, which is not there; the top is ours then.
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
    """Resident memory of this process now; on macOS its peak, which is all that it tells."""
    text = _read(Path("/proc/self/statm"))
    if text:
        return int(text.split()[1]) * _PAGE
    return peak_resident_bytes()


def proportional_bytes() -> int | None:
    """Resident memory with pages shared with other processes counted in part; None if unknown."""
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
        return path.read_text().strip()
    except OSError:
        return None


def human_bytes(count: int) -> str:
    """1610612736 -> '1.5 GiB'."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, 4)
    return f"{count / 1024**power:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"
