"""What is where: a plan beside what llama.cpp allocated."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from worker.memory.offload import Placement

_MIB = 2**20


def by_device(places: Iterable[Placement]) -> dict[str, dict[str, int]]:
    """Bytes of weights, cells and steps of each device; what the process makes are no buffers."""
    found: dict[str, dict[str, int]] = {}
    for place in places:
        if place.part not in ("output", "copies", "process"):
            parts = found.setdefault(place.device, {})
            parts[place.part] = parts.get(place.part, 0) + place.nbytes
    return found


def assert_asked(planned: Iterable[Placement], allocated: Iterable[Placement]) -> None:
    """The plan of each device's weights, cells and compute buffers is what llama.cpp allocated, as
    it prints them: in steps of 10 KiB, weights with padding."""
    plan, real = by_device(planned), by_device(allocated)
    assert set(plan) == set(real)
    for name, parts in real.items():
        for part, nbytes in parts.items():
            assert plan[name].get(part, 0) == pytest.approx(nbytes, abs=30_000), (name, part)


def assert_planned(planned: Iterable[Placement], allocated: Iterable[Placement]) -> None:
    """The plan of each device is within 5 % of what llama.cpp allocated there, or 0.1 MB where
    that is next to nothing."""
    plan, real = by_device(planned), by_device(allocated)
    assert set(plan) == set(real)
    for name, parts in real.items():
        total = sum(parts.values())
        print(f"{name}: planned {sum(plan[name].values()) / _MIB:.2f}, {total / _MIB:.2f} MiB")
        assert sum(plan[name].values()) == pytest.approx(total, rel=0.05, abs=1e5), name
        for part in ("weights", "kv"):
            assert plan[name].get(part, 0) == pytest.approx(parts.get(part, 0), rel=0.02, abs=6000)
