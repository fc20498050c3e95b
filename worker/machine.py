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


class Memory(msgspec.Struct, frozen=True):
    """Bytes. `available` is what a new allocation can get, the cgroup's limit included."""

    total: int
    available: int


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
    """CPUs' worth of time that the cgroup grants, or None."""
    text = _read(_own_cgroup() / "cpu.max") or _read(_CGROUP / "cpu.max")
    if text:
        quota, period = text.split()
        return None if quota == "max" else int(quota) / int(period)
    quota_us = _read(_CGROUP / "cpu" / "cpu.cfs_quota_us")
    period_us = _read(_CGROUP / "cpu" / "cpu.cfs_period_us")
    if quota_us and period_us and int(quota_us) > 0:
        return int(quota_us) / int(period_us)
    return None


def memory() -> Memory:
    """The machine's memory as this process sees it."""
    total, available = _physical_memory()
    for limit, used in _cgroup_memory():
        total = min(total, limit)
        available = min(available, max(0, limit - used))
    return Memory(total=total, available=available)


def _physical_memory() -> tuple[int, int]:
    text = _read(Path("/proc/meminfo"))
    if text:
        fields = dict(line.split(":", 1) for line in text.splitlines())
        total = int(fields["MemTotal"].split()[0]) * 1024
        return total, int(fields.get("MemAvailable", fields["MemFree"]).split()[0]) * 1024
    page = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * page
    # macOS does not say what is available through sysconf; half is what it grants a process
    # before it begins to compress.
    return total, total // 2


def _cgroup_memory() -> list[tuple[int, int]]:
    """(limit, used without reclaimable file cache) of each cgroup level that has a limit."""
    found: list[tuple[int, int]] = []
    folder = _own_cgroup()
    while folder != _CGROUP.parent:
        limit = _read(folder / "memory.max")
        if limit and limit != "max":
            used = int(_read(folder / "memory.current") or 0)
            found.append((int(limit), max(0, used - _reclaimable(folder))))
        if folder == _CGROUP:
            break
        folder = folder.parent
    limit_v1 = _read(_CGROUP / "memory" / "memory.limit_in_bytes")
    if limit_v1 and int(limit_v1) < _NO_LIMIT:
        used = int(_read(_CGROUP / "memory" / "memory.usage_in_bytes") or 0)
        found.append((int(limit_v1), used))
    return found


def _reclaimable(folder: Path) -> int:
    for line in (_read(folder / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == "inactive_file":
            return int(value)
    return 0


def _own_cgroup() -> Path:
    for line in (_read(Path("/proc/self/cgroup")) or "").splitlines():
        if line.startswith("0::"):
            path = _CGROUP / line[3:].strip().lstrip("/")
            if path.is_dir():
                return path
    return _CGROUP


def resident_bytes() -> int:
    """Resident memory of this process now; on macOS its peak, which is all that it tells."""
    text = _read(Path("/proc/self/statm"))
    if text:
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return peak_resident_bytes()


def peak_resident_bytes() -> int:
    """The most memory that was resident in this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
