"""Samples to tables, goals and the line of JSON. Nothing here measures."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.table import Table

from benchmarks.peers.answers import median
from benchmarks.peers.cases import CASES, Case, Sample

US, NATIVE, BARE = "worker", "llama-server", "bare"

# case -> peer -> its samples, a round each, or why there are none
Results = dict[str, dict[str, list[Sample]]]


class Goal(msgspec.Struct, frozen=True):
    """One thing to reach, side by side in one run.

    field   of our samples
    peer    whose `value` ours is divided by, or None for the figure itself
    bound   at least this, or at most where `is_upper`
    """

    case: str
    text: str
    bound: float
    field: str = "value"
    peer: str | None = None
    is_upper: bool = False

    def reached(self, results: Results) -> float | None:
        """Our figure; None where it was not measured."""
        ours = _values(results, self.case, US, self.field)
        if not ours or self.peer is None:
            return median(ours) if ours else None
        theirs = _values(results, self.case, self.peer, self.field)
        return median(ours) / max(median(theirs), 1e-9) if theirs else None

    def is_met(self, reached: float) -> bool:
        """Whether the bound holds."""
        return reached <= self.bound if self.is_upper else reached >= self.bound


GOALS = (
    Goal("single", "speed / native llama-server", 1, peer=NATIVE),
    Goal("single", "speed / bare loop", 0.95, peer=BARE),
    Goal("eight", "speed / native llama-server", 1, peer=NATIVE),
    Goal("prefix", "speed / native llama-server", 2, peer=NATIVE),
    Goal("stall", "longest gap, s", 0.5, is_upper=True),
    Goal("stall", "long prompt's TTFT / alone", 1.5, field="ttft_to_alone", is_upper=True),
    Goal("busy", "speed kept", 0.45),
    Goal("pair", "speed / native pair", 10, peer=NATIVE),
)


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
            ratio = f"{_advantage(case, median(ours), median(values)):.2f}"
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
            peer: _advantage(CASES[name], median(ours), median(theirs))
            for peer in samples
            if peer != US
            and (ours := _values(results, name, US))
            and (theirs := _values(results, name, peer))
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


def _advantage(case: Case, ours: float, theirs: float) -> float:
    better, worse = (theirs, ours) if case.is_less_better else (ours, theirs)
    return better / max(worse, 1e-9)


def _values(results: Results, case: str, peer: str, field: str = "value") -> Sequence[float]:
    return [sample[field] for sample in results.get(case, {}).get(peer, [])]


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
