"""Samples to tables, goals and the line of JSON. Nothing here measures."""

from __future__ import annotations

import msgspec
from rich.table import Table

from benchmarks.peers.answers import median
from benchmarks.peers.cases.case import Case, Sample
from benchmarks.peers.cases.catalog import CASES
from benchmarks.peers.goals import GOALS, US, Results, advantage, values_of


def case_table(case: Case, samples: dict[str, list[Sample]]) -> Table:
    """Peers as rows: median, spread, and how many times as good we are."""
    table = Table(title=f"{case.name}: {case.title}", title_justify="left", min_width=96)
    table.add_column("peer", min_width=16)
    for heading in (f"median, {case.unit}", "least", "most", "worker is × as good"):
        table.add_column(heading, justify="right")
    table.add_column("also (medians)")
    ours = [sample["value"] for sample in samples.get(US, [])]
    for peer, found in samples.items():
        values = [sample["value"] for sample in found]
        if not values:
            table.add_row(peer, "–", "", "", "", "")
            continue
        ratio = ""
        if ours and peer != US:
            ratio = str(advantage(case, ours, values))
        also = "  ".join(
            f"{name} {_short(median([sample[name] for sample in found]))}"
            for name in found[0]
            if name != "value"
        )
        table.add_row(peer, *map(_short, (median(values), min(values), max(values))), ratio, also)
    return table


def goal_table(results: Results) -> Table:
    """What was to be reached and what was."""
    table = Table(title="to reach, side by side", title_justify="left", min_width=96)
    table.add_column("case")
    table.add_column("the worker's")
    for heading in ("to reach", "reached", ""):
        table.add_column(heading, justify="right")
    for goal in GOALS:
        if goal.case not in results:
            continue
        reached = goal.reached(results)
        sign = "≤" if goal.is_upper else "≥"
        shown, verdict = "–", "not measured"
        if reached is not None:
            shown, verdict = _short(reached), "yes" if goal.is_met(reached) else "no"
        table.add_row(goal.case, goal.text, f"{sign} {goal.bound:g}", shown, verdict)
    return table


def as_json(configuration: dict[str, object], results: Results) -> str:
    """Everything on one line: configuration, raw samples, ratios, goals."""
    ratios = {
        name: {
            peer: advantage(CASES[name], ours, theirs)._asdict()
            for peer in samples
            if peer != US
            and (ours := values_of(results, name, US))
            and (theirs := values_of(results, name, peer))
        }
        for name, samples in results.items()
    }
    goals = [
        {"case": goal.case, "what": goal.text, "bound": goal.bound, "reached": reached}
        for goal in GOALS
        if (reached := goal.reached(results)) is not None
    ]
    report = configuration | {"samples": results, "worker_is_times": ratios, "goals": goals}
    return msgspec.json.encode(report).decode()


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
