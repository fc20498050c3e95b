"""worker fleet plan: what would run where."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from worker.cli.console import data_console, titled, write_json
from worker.fleet.cluster import machines_of, this_machine
from worker.fleet.file import read_fleet
from worker.fleet.plan import check_fits, plan_fleet
from worker.machine import human_bytes

if TYPE_CHECKING:
    from worker.fleet.plan import FleetPlan


def run(arguments: argparse.Namespace) -> int:
    """Print the plan, then raise DoesNotFitError where it does not fit."""
    fleet = read_fleet(Path(arguments.file) if arguments.file else None)
    machines = [this_machine()] if arguments.address is None else machines_of(arguments.address)
    plan = plan_fleet(fleet, machines)
    if arguments.json:
        write_json({"fits": plan.fits, "plan": plan})
    else:
        for table in _tables(plan):
            data_console().print(table)
    check_fits(plan)
    return 0


def _tables(plan: FleetPlan) -> tuple[Any, Any]:
    models = Table(box=None)
    for name in ("model", "replicas", "affinity", "CPUs", "memory", "cells", "sequences"):
        models.add_column(name, justify="left" if name in ("model", "affinity") else "right")
    for need in plan.needs:
        number = str(need.replicas) if need.bounds is None else f"{need.replicas} to {need.most}"
        models.add_row(
            need.model, number, need.affinity, str(need.cpus),
            human_bytes(need.memory), f"{need.num_cells:,}", str(need.num_slots),
        )  # fmt: skip
        if need.rpc_nodes:
            models.add_row(
                need.layers_name, f"{need.rpc_nodes} for each", "", str(need.cpus),
                human_bytes(need.rpc_memory), "", "",
            )  # fmt: skip
    places = Table(box=None)
    for name in ("machine", "CPUs", "memory", "replicas"):
        places.add_column(name, justify="right" if name in ("CPUs", "memory") else "left")
    for place in plan.places:
        machine, held = place.machine, Counter(place.models)
        here = ", ".join(f"{count} x {name}" for name, count in held.items())
        places.add_row(machine.name, str(machine.cpus), human_bytes(machine.memory), here or "-")
    verdict = "fits" if plan.fits else f"does not fit: {len(plan.left_over)} left over"
    if any(need.bounds is not None for need in plan.needs):
        left = len(plan.left_at_most)
        verdict += f"; at most: {f'{left} left over' if left else 'fits'}"
    return titled("each replica needs", models), titled(f"where they could run: {verdict}", places)
