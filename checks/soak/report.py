"""What a run says: a table for people, JSON for programs."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.table import Table

from checks.soak.run import Soak
from checks.soak.soaked import DraftSlot
from checks.soak.verdict import IDLE, MB, Soaking

_SHOWN = ("anonymous", "resident", "descriptors", "threads", "cache_bytes", "folder_bytes",
          "folder_files", "temp_files", *IDLE)  # fmt: skip
_BYTES = ("anonymous", "resident", "cache_bytes", "folder_bytes")
_NAMES = {
    "anonymous": "anonymous memory, MB",
    "resident": "resident memory, MB",
    "cache_bytes": "kept states, MB",
    "folder_bytes": "kept states on disk, MB",
    "folder_files": "kept states, files",
    "temp_files": "temporary files",
    "live_cells": "cells in use",
    "running": "running sequences",
    "waiting": "waiting sequences",
    "requests": "live requests",
}


def table_of(soak: Soak, warm_up: float) -> Table:
    """A row for each thing that a worker holds while nobody asks; warm_up: seconds.

    Least and most are those after the warm-up."""
    later = [s for s in soak.samples if s.seconds >= warm_up] or soak.samples
    table = Table(box=None, header_style="bold")
    table.add_column("held", no_wrap=True)
    for name in ("at first", "warm", "least", "most", "at last"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in _SHOWN:
        ends = [soak.samples[0], later[0], None, None, soak.samples[-1]]
        values = [_value(sample, name) for sample in later]
        shown = [_value(sample, name) if sample else 0.0 for sample in ends]
        shown[2:4] = min(values), max(values)
        digits = 1 if name in _BYTES else 0
        table.add_row(_NAMES.get(name, name), *(f"{value:.{digits}f}" for value in shown))
    return table


def words_of(soak: Soak, verdict: Soaking, warm_up: float, limit: float) -> list[str]:
    """The rest, in lines; the verdict is the last one."""
    last = soak.samples[-1]
    by_kind: dict[str, int] = {}
    for what, count in soak.came.items():
        kind = what.partition(" ")[0]
        by_kind[kind] = by_kind.get(kind, 0) + count
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(by_kind.items()))
    told = ", ".join(f"{answer} {count}" for answer, count in sorted(soak.told.items()))
    lines = [
        f"{last.seconds / 60:.1f} minutes, {last.clients} clients ({kinds})",
        f"heartbeats by their answer: {told}",
        f"CPU: worker {last.cpu_s / last.seconds:.0%} of one core, clients "
        f"{soak.clients_cpu_s / last.seconds:.0%}",
    ]
    slope = verdict.slope
    if slope is None:
        lines.append(f"too few samples after the warm-up of {warm_up / 60:g} minutes")
    else:
        lines.append(
            f"slope after {warm_up / 60:g} minutes: {slope.middle:+.2f} MB an hour, with 95 % "
            f"between {slope.low:+.2f} and {slope.high:+.2f}; {verdict.per_thousand:+.2f} kB for "
            "each thousand clients"
        )
        lines.append(f"the smallest leak that this run shows: {slope.least_shown:.2f} MB an hour")
    lines += verdict.reasons
    lines.append({
        "sound": f"sound: nothing is left behind, and memory grows by less than {limit:g} MB "
        "an hour",
        "leak": "not sound",
        "short": f"too short to tell whether memory grows by {limit:g} MB an hour: "
        "give it more minutes, or a higher --limit",
    }[verdict.outcome])  # fmt: skip
    return lines


def json_of(soak: Soak, verdict: Soaking, warm_up: float, limit: float) -> dict[str, Any]:
    """All of it but the samples between the first and the last."""
    return {
        "plan": msgspec.to_builtins(soak.plan),
        "warm_up_s": warm_up,
        "limit_mb_per_hour": limit,
        "verdict": msgspec.to_builtins(verdict),
        "samples": len(soak.samples),
        "first": msgspec.to_builtins(soak.samples[0]),
        "last": msgspec.to_builtins(soak.samples[-1]),
        "came": dict(soak.came),
        "wrong": dict(soak.wrong),
        "heartbeats": dict(soak.told),
        "clients_cpu_s": soak.clients_cpu_s,
    }


def _value(sample: DraftSlot, name: str) -> float:
    value = getattr(sample, name)
    return value / MB if name in _BYTES else float(value)
