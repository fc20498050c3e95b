"""worker fleet plan: what would run where."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from rich.table import Table

from gguf_fleet.cli.console import plain, write, write_json
from gguf_fleet.cluster import machines_of, this_machine
from gguf_fleet.file import read_fleet
from gguf_fleet.plan import FleetPlan, check_fits, plan_fleet
from gguf_fleet.text import human_bytes


def run(arguments: argparse.Namespace) -> int:
    """Print the plan, then raise DoesNotFitError where it does not fit."""
    fleet = read_fleet(Path(arguments.file) if arguments.file else None)
    if arguments.address is None:
        machines = [this_machine(with_gpus=fleet.wants_gpus)]
    else:
        machines = machines_of(arguments.address, with_gpus=fleet.wants_gpus)
    plan = plan_fleet(fleet, machines)
    if arguments.json:
        write_json({"fits": plan.fits, "plan": plan})
    else:
        _write(plan)
    check_fits(plan)
    return 0


def _write(plan: FleetPlan) -> None:
    has_gpus = any(need.gpus for need in plan.needs)
    verdict = "fits" if plan.fits else f"does not fit: {len(plan.left_over)} left over"
    if any(need.bounds is not None for need in plan.needs):
        left = len(plan.left_at_most)
        verdict += f"; at most: {f'{left} left over' if left else 'fits'}"
    write("each replica needs", _models(plan, has_gpus=has_gpus))
    write(f"where they could run: {verdict}", _places(plan, has_gpus=has_gpus))


def _models(plan: FleetPlan, *, has_gpus: bool) -> Table:
    models = Table(box=None)
    gpu_columns = ("GPUs", "on each", "layers there") if has_gpus else ()
    columns = ("model", "replicas", "affinity", "CPUs", "memory", *gpu_columns, "cells")
    for name in (*columns, "sequences"):
        models.add_column(name, justify="left" if name in ("model", "affinity") else "right")
    for need in plan.needs:
        number = str(need.replicas) if need.bounds is None else f"{need.replicas} to {need.most}"
        gpus = (str(need.gpus), human_bytes(need.device_memory)) if need.gpus else ("-", "-")
        layers = f"{need.gpu_layers} of {need.layers}" if need.gpus else "-"
        models.add_row(
            need.model, number, need.affinity, str(need.cpus), human_bytes(need.memory),
            *((*gpus, layers) if has_gpus else ()), f"{need.num_cells:,}", str(need.num_slots),
        )  # fmt: skip
        if need.rpc_nodes:
            models.add_row(
                need.layers_name, f"{need.rpc_nodes} for each", "", str(need.cpus),
                human_bytes(need.rpc_memory), *((*gpus, "") if has_gpus else ()), "", "",
            )  # fmt: skip
    return models


def _places(plan: FleetPlan, *, has_gpus: bool) -> Table:
    """A line for each machine, and below it one for each of its GPUs."""
    places = Table(box=None)
    for name in ("machine", "CPUs", "memory", *(("free",) if has_gpus else ()), "replicas"):
        places.add_column(name, justify="left" if name in ("machine", "replicas") else "right")
    needs = {label: need for need in plan.needs for label in (need.model, need.layers_name)}
    for place in plan.places:
        machine, held = place.machine, Counter(place.models)
        here = ", ".join(f"{count} x {name}" for name, count in held.items())
        memory = human_bytes(machine.memory)
        places.add_row(
            machine.name, str(machine.cpus), memory, *(("",) if has_gpus else ()), here or "-"
        )
        if not has_gpus:
            continue
        if machine.trouble:
            places.add_row(f"  {machine.gpus} GPUs", "", "", "", plain(machine.trouble))
        for device, label in zip(machine.devices, place.devices, strict=True):
            need = needs.get(label)
            what = f"{label}: {human_bytes(need.device_memory)}" if need else "-"
            name = plain(f"  {device.name} {device.description}")
            places.add_row(name, "", human_bytes(device.total), human_bytes(device.free), what)
    return places
