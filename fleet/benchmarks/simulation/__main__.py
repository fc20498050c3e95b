"""A simulated fleet: what routing and scaling do at a size that no test machine has.

    python -m benchmarks.simulation [--costs 125M] [--replicas 100] [--models 10] [--seed 1]

Real: `gguf_fleet.routing.order`, `gguf_fleet.scale.count`, the engine's rule for chunks of
prompts, and the costs of steps, recorded from real models. Drawn by the
seed: who asks what and when. Not in it: the network, the gateway's own time, machines that share
memory bandwidth, sequences longer than those recorded, the KV cache's cells.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections.abc import Sequence

from benchmarks.simulation.clock import EventClock
from benchmarks.simulation.costs import RecordedCosts, read_costs
from benchmarks.simulation.fleet import RunTally, Scaling, SimulatedFleet, ways
from benchmarks.simulation.load import LOADS, UserLoad
from benchmarks.simulation.worker import SLOTS
from gguf_fleet.scale.count import ReplicaCount, ScaleBounds

WARM_S, RUN_S = 60.0, 60.0
START_S = 7.0  # until a new replica is ready: of the demo model 5 s, on a busy machine 11
RAMP_S = 1200.0


def spread(values: Sequence[float], share: float) -> float:
    """That quantile; 0 of none."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def compared(
    costs: RecordedCosts, load: UserLoad, *, models: int, replicas: int, users: int, seed: int
) -> dict[str, tuple[RunTally, float]]:
    """What each way of routing makes of the same users: its tally, and CPU seconds of the run."""
    found: dict[str, tuple[RunTally, float]] = {}
    for name in ways(random.Random(seed)):
        clock, began = EventClock(), time.thread_time()
        fleets = [
            SimulatedFleet(clock, ways(random.Random(n))[name], costs, load, n)
            for n in range(seed, seed + models)
        ]
        for fleet in fleets:
            fleet.add_workers(replicas)
            fleet.set_users(users)
        clock.run(WARM_S)
        for fleet in fleets:
            fleet.tally = RunTally()
        clock.run(WARM_S + RUN_S)
        total = RunTally()
        for tally in (fleet.tally for fleet in fleets):
            total.firsts += tally.firsts
            total.tokens += tally.tokens
            total.prompt += tally.prompt
            total.found += tally.found
            total.refused += tally.refused
        found[name] = total, time.thread_time() - began
    return found


def ramp(costs: RecordedCosts, load: UserLoad, *, replicas: int, users: int, seed: int) -> None:
    """Users come in RAMP_S / 3, stay so long, and go; by scaling, and with all replicas at once."""
    print(f"\n{users} users come, stay and go, 400 s each; 1 to {replicas} replicas, idle = 60")
    print("replicas     first token p50 / p95   replica hours   most   changes   refused")
    for scaled in (True, False):
        clock, dice = EventClock(), random.Random(seed)
        fleet = SimulatedFleet(clock, ways(dice)["prefix"], costs, load, seed)
        fleet.add_workers(1 if scaled else replicas)
        bounds = ScaleBounds(least=1, most=replicas, idle=60, first_token=5, slots=SLOTS)
        scaling = Scaling(fleet, clock, ReplicaCount(bounds), 1, START_S) if scaled else None
        for second in range(int(RAMP_S)):
            third = RAMP_S / 3
            share = min(1.0, second / third, (RAMP_S - second) / third)
            fleet.set_users(max(1, int(users * share)))
            clock.run(second + 1.0)
        numbers = [there for _, _, there in scaling.history] if scaling else [replicas] * 1200
        changes = sum(a != b for a, b in itertools.pairwise(numbers))
        firsts = fleet.tally.firsts
        print(
            f"{'scaled' if scaled else 'all':12} {spread(firsts, 0.5):9.2f} / "
            f"{spread(firsts, 0.95):.2f} s     {sum(numbers) / 3600:9.1f}   {max(numbers):8} "
            f"{changes:8}  {fleet.tally.refused:8}"
        )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--costs", default="125M", help="a name of costs.json")
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--replicas", type=int, default=100, help="of each model")
    parser.add_argument("--users", type=int, help="of each model (default: 10 for each replica)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    costs = read_costs()[given.costs]
    users = given.users or 10 * given.replicas
    print(
        f"{given.models * given.replicas} workers of {given.models} models, {SLOTS} slots each, "
        f"{given.models * users} users, costs of {given.costs}, seed {given.seed}"
    )
    for load in LOADS:
        print(f"\n{load.name}")
        print("way             hits   first token p50 / p95   tokens/s   refused   CPU of the run")
        found = compared(
            costs, load, models=given.models, replicas=given.replicas, users=users, seed=given.seed
        )
        for way, (tally, seconds) in found.items():
            print(
                f"{way:13} {tally.found / max(1, tally.prompt):6.1%} "
                f"{spread(tally.firsts, 0.5):9.2f} / {spread(tally.firsts, 0.95):.2f} s"
                f" {tally.tokens / RUN_S:12,.0f} {tally.refused:9} {seconds:9.1f} s"
            )
    ramp(costs, LOADS[0], replicas=given.replicas, users=users, seed=given.seed)


if __name__ == "__main__":
    main()
